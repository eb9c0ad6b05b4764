"""The encoder by compiled code, in bfloat16 or with products in 8 bits: the fast twin of `Encoder`.

The same weights and the same interface; the stream that its layers add to stays in fp32.
"""

from __future__ import annotations

import ctypes
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nightingale.backends.torch.flow.encoder import (
    LOOKAHEAD_TOKENS,
    Encoder,
    EncoderBlock,
    InputProjection,
    align_distances,
    distance_waves,
)
from nightingale.backends.torch.flow.fast import Product, past, product_of
from nightingale.backends.torch.flow.window import Window
from nightingale.core import FRAMES_PER_TOKEN
from nightingale.nn import fused, native


class FastEncoder(nn.Module):
    """(B, T, D) -> (B, 2 T, D)"""

    def __init__(self, slow: Encoder, library: ctypes.CDLL) -> None:
        super().__init__()
        look = slow.pre_lookahead_layer
        self.embed, self.up_embed = (
            _Entrance(slow.embed, library),
            _Entrance(slow.up_embed, library),
        )
        self.ahead, self.behind = (product_of(conv, library) for conv in (look.conv1, look.conv2))
        self.up_proj = product_of(slow.up_layer.conv, library)
        self.blocks = _blocks(slow.encoders, library)
        self.up_blocks = _blocks(slow.up_encoders, library)
        self.after_norm = slow.after_norm

    def forward(self, x: Tensor, *, n_ahead: int = 0, window: Window | None = None) -> Tensor:
        """As `Encoder.forward`."""
        assert n_ahead in (0, LOOKAHEAD_TOKENS)
        x = self.embed(x.bfloat16())
        seen = F.pad(x, (0, 0, 0, LOOKAHEAD_TOKENS - n_ahead)).bfloat16()
        ahead = self.ahead(seen)
        x = x[:, : x.shape[1] - n_ahead] + self.behind(past(F.leaky_relu(ahead), window=window))
        x = _through(self.blocks, x, window)
        doubled = x.bfloat16().repeat_interleave(FRAMES_PER_TOKEN, dim=1)
        x = self.up_embed(self.up_proj(past(doubled, 2 * FRAMES_PER_TOKEN + 1, window)))
        return self.after_norm(_through(self.up_blocks, x, window))


class _Entrance(nn.Module):
    def __init__(self, slow: InputProjection, library: ctypes.CDLL) -> None:
        super().__init__()
        self.product, self.norm = product_of(slow.out[0], library), cast(nn.LayerNorm, slow.out[1])
        self.scale = slow.scale

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(self.product(x).float()) * self.scale


class _Distances(nn.Module):
    """What a block makes of distances between positions: kept, since it is always the same."""

    def __init__(self, weight: Tensor, library: ctypes.CDLL) -> None:
        super().__init__()
        self.product = Product(weight, None, library)
        self._kept = torch.empty(0, weight.shape[1])
        self._n = self._n_before = 0

    def forward(self, n: int, n_before: int) -> Tensor:
        """(2 n + n_before, D), in the order of `distance_waves`."""
        far = n + n_before
        if n > self._n or far > self._n + self._n_before:
            farthest = max(far, self._n + self._n_before)
            self._n = max(n, self._n)
            self._n_before = farthest - self._n
            waves = distance_waves(self._n, self._kept.shape[1], self._n_before)
            self._kept = self.product(waves[None].bfloat16())[0]
        start = self._n + self._n_before - far
        return self._kept[start : start + n + far]


class _Block(nn.Module):
    def __init__(self, slow: EncoderBlock, library: ctypes.CDLL) -> None:
        super().__init__()
        self._library = library
        attention, ff = slow.self_attn, slow.feed_forward
        self.n_heads = attention.n_heads
        n_heads, d_model = self.n_heads, attention.linear_q.weight.shape[0]
        parts = (attention.linear_q, attention.linear_k, attention.linear_v)
        biases = (attention.linear_q.bias, torch.zeros(d_model), attention.linear_v.bias)
        self.qkv = Product(torch.cat([part.weight for part in parts]), torch.cat(biases), library)
        self.distances = _Distances(attention.linear_pos.weight, library)
        self.out = product_of(attention.linear_out, library)
        self.up_proj, self.down_proj = (product_of(layer, library) for layer in (ff.w_1, ff.w_2))
        self.norm_mha, self.norm_ff = slow.norm_mha, slow.norm_ff
        self.register_buffer("u", attention.pos_bias_u.detach().view(n_heads, 1, -1).bfloat16())
        self.register_buffer("v", attention.pos_bias_v.detach().view(n_heads, 1, -1).bfloat16())
        self.u: Tensor
        self.v: Tensor

    def forward(self, stream: Tensor, added: Tensor | None, window: Window | None) -> Tensor:
        """The stream, fp32, takes in what the last layer added; returns what this one adds."""
        qkv = self.qkv(self._add_norm(stream, added, self.norm_mha)).chunk(3, dim=-1)
        queries, keys, values = (self._heads(part) for part in qkv)  # (B, H, T, D/H)
        if window is not None:
            keys, values = (torch.cat(seen, dim=2) for seen in window.reach(keys, values))
        attend = self._attend if self._library is native.amx() else self._attend_fp32
        heard = self.out(attend(queries, keys, values).transpose(1, 2).flatten(2))
        return self.down_proj(F.silu(self.up_proj(self._add_norm(stream, heard, self.norm_ff))))

    def _attend(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        scale = queries.shape[-1] ** -0.5
        distances = self.distances(queries.shape[2], keys.shape[2] - queries.shape[2])
        by_distance = (queries + self.v) @ self._heads(distances).mT
        scores = (queries + self.u) @ keys.mT + align_distances(by_distance)
        weights = (scores.float() * scale).softmax(-1).bfloat16()
        return weights @ values

    def _attend_fp32(self, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Where products of bfloat16 are slower than those of fp32."""
        distances = self.distances(queries.shape[2], keys.shape[2] - queries.shape[2]).float()
        queries, scale = queries.float(), queries.shape[-1] ** -0.5
        by_distance = (queries + self.v) * scale @ self._heads(distances).mT
        heard = F.scaled_dot_product_attention(
            queries + self.u, keys.float(), values.float(), attn_mask=align_distances(by_distance)
        )
        return heard.bfloat16()

    def _heads(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:-1], self.n_heads, -1).transpose(-3, -2)

    def _add_norm(self, stream: Tensor, added: Tensor | None, norm: nn.LayerNorm) -> Tensor:
        return fused.add_norm(stream, added, norm, self._library)


def _blocks(slow: nn.ModuleList, library: ctypes.CDLL) -> nn.ModuleList:
    return nn.ModuleList(_Block(cast(EncoderBlock, block), library) for block in slow)


def _through(blocks: nn.ModuleList, stream: Tensor, window: Window | None) -> Tensor:
    stream, added = stream.contiguous(), None
    for block in blocks:
        added = block(stream, added, window)
    return stream if added is None else stream + added
