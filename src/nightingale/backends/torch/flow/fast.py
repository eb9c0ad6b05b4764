"""The estimator by compiled code, in bfloat16 or with products in 8 bits: the fast twin of
`Estimator`.

The same weights and the same interface. What the layers add to (the stream, and x itself) stays in
fp32. The library says how products are computed: see `nn.convolution`.
"""

from __future__ import annotations

import ctypes
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nightingale.backends.torch.flow.estimator import (
    Context,
    Estimator,
    ResnetBlock,
    Transformer,
    all_known,
    make_context,
    time_shifts,
)
from nightingale.backends.torch.flow.window import Window
from nightingale.nn import fused
from nightingale.nn.convolution import Convolution


class Product(nn.Module):
    """A linear layer or a convolution, bfloat16 in and out; channels that are no whole tiles are
    made so on the way in, and cut on the way out."""

    def __init__(
        self, weight: Tensor, bias: Tensor | None, library: ctypes.CDLL, *, gelu: bool = False
    ) -> None:
        super().__init__()
        self._n_out, self._gelu = weight.shape[0], gelu
        taps = weight if weight.dim() == 3 else weight[..., None]
        self.conv = Convolution(taps, bias, library=library)

    def forward(self, x: Tensor, norm: nn.LayerNorm | None = None) -> Tensor:
        """(B, T + taps - 1, D) -> (B, T, D'), then through gelu if `gelu`.

        With a norm, x is fp32, has whole tiles, and is normed on the way in.
        """
        missing = self.conv.n_in - x.shape[-1]
        x = F.pad(x, (0, missing)) if missing else x.contiguous()
        out = self.conv(x, bf16=True, gelu=self._gelu, norm=norm)
        return out if self._n_out == self.conv.n_out else out[..., : self._n_out].contiguous()


def past(x: Tensor, n: int = 3, window: Window | None = None) -> Tensor:
    """(B, M, D) -> (B, n - 1 + M, D): behind the frames before it, for a product of n taps."""
    return window.past(x, n - 1) if window else F.pad(x, (0, 0, n - 1, 0))


class FastEstimator(nn.Module):
    """Velocities for one or two rows of frames."""

    dtype = torch.bfloat16

    def __init__(self, slow: Estimator, library: ctypes.CDLL) -> None:
        super().__init__()
        self._library = library
        self.config = slow.config
        self.time_mlp, self.time_embed_mixer = slow.time_mlp, slow.time_embed_mixer
        self.time_units = nn.ModuleList(block.unit.mlp[1] for block in slow.blocks())
        n_mel = slow.config.n_mel
        blocks = list(slow.blocks())
        entrance = blocks[0].unit
        self.entrance = entrance.block1.conv  # fp32, for what is constant over the steps
        self.residual = entrance.res_conv
        conv, around = entrance.block1.conv, entrance.res_conv
        self.x_conv = Product(conv.weight[:, :n_mel], conv.bias, library)
        self.x_around = Product(around.weight[:, :n_mel, 0], around.bias, library)
        self.units = nn.ModuleList(_Unit(block.unit, library) for block in blocks)
        self.transformers = nn.ModuleList(
            nn.ModuleList(_Transformer(t, library) for t in block.transformers) for block in blocks
        )
        self.first_end = product_of(blocks[0][2], library)
        self.last_end = product_of(blocks[-1][2], library)
        self.final_conv = product_of(slow.final_block.conv, library)
        self.final_norm = slow.final_block.norm
        self.final_proj = Product(slow.final_proj.weight[..., 0], slow.final_proj.bias, library)

    def shifts(self, start: Tensor, end: Tensor) -> Tensor:
        """As `Estimator.shifts`."""
        n_waves = self.config.n_inputs
        return time_shifts(
            self.time_mlp, self.time_embed_mixer, self.time_units, n_waves, start, end
        )

    def context(
        self,
        mu: Tensor,
        speaker: Tensor,
        cond: Tensor,
        *,
        guided: bool,
        window: Window | None = None,
    ) -> Context:
        """As `Estimator.context`, and in fp32 like it."""
        known = all_known(mu, speaker, cond)
        return make_context(self.entrance, self.residual, known, guided=guided, window=window)

    def forward(
        self, x: Tensor, context: Context, shifts: Tensor, window: Window | None = None
    ) -> Tensor:
        """(1, M, 80) and the (n_units, D) of this step -> velocities (B, M, 80), a row per
        context."""
        noisy = x.bfloat16()
        h = (self.x_conv(past(noisy, window=window)) + context.conv).bfloat16()
        residual = (self.x_around(noisy) + context.shortcut).bfloat16()
        stream = cast(_Unit, self.units[0]).finish(h, residual, shifts[0], window)
        skip = self._transform(0, stream, window)
        h = self.first_end(past(skip, window=window))
        last = len(self.units) - 1
        for index in range(1, last):
            h = self._transform(index, self.units[index](h, shifts[index], window), window)
        h = self.units[last](torch.cat((h, skip), dim=-1), shifts[last], window)
        h = self.last_end(past(self._transform(last, h, window), window=window))
        h = self.final_conv(past(h, window=window))
        h = fused.norm_mish(h, self.final_norm, library=self._library)
        return self.final_proj(h).float()

    def _transform(self, index: int, stream: Tensor, window: Window | None) -> Tensor:
        """(B, M, D), fp32, through the transformers of a block -> bfloat16"""
        for transformer in cast(nn.ModuleList, self.transformers[index]):
            transformer(stream, window)
        return stream.bfloat16()


class _Unit(nn.Module):
    def __init__(self, slow: ResnetBlock, library: ctypes.CDLL) -> None:
        super().__init__()
        self._library = library
        self.conv1 = product_of(slow.block1.conv, library)
        self.conv2 = product_of(slow.block2.conv, library)
        self.norm1, self.norm2 = slow.block1.norm, slow.block2.norm
        self.residual = Product(slow.res_conv.weight[..., 0], slow.res_conv.bias, library)

    def forward(self, x: Tensor, shift: Tensor, window: Window | None) -> Tensor:
        return self.finish(self.conv1(past(x, window=window)), self.residual(x), shift, window)

    def finish(self, h: Tensor, residual: Tensor, shift: Tensor, window: Window | None) -> Tensor:
        """Everything behind the first convolution; fp32 out."""
        h = fused.norm_mish(h, self.norm1, shift, self._library)
        h = self.conv2(past(h, window=window))
        return fused.norm_mish_residual(h, self.norm2, residual, self._library)


class _Transformer(nn.Module):
    def __init__(self, slow: Transformer, library: ctypes.CDLL) -> None:
        super().__init__()
        self._library = library
        attention, ff = slow.attn1, slow.ff
        self.n_heads = attention.n_heads
        parts = (attention.to_q, attention.to_k, attention.to_v)
        self.norm1, self.norm3 = slow.norm1, slow.norm3
        self.qkv = Product(torch.cat([part.weight for part in parts]), None, library)
        self.out = product_of(attention.to_out[0], library)
        self.up_proj = product_of(ff.up_proj, library, gelu=True)
        self.down_proj = product_of(ff.down_proj, library)

    def forward(self, stream: Tensor, window: Window | None) -> None:
        """The stream, fp32, grows in place."""
        queries, keys, values = self.qkv(stream, self.norm1).chunk(3, dim=-1)
        all_keys, all_values = window.reach(keys, values) if window else ([keys], [values])
        heard = fused.attend(queries, all_keys, all_values, self.n_heads, self._library)
        self.out.conv.add_to(stream, _whole(heard, self.out))
        self.down_proj.conv.add_to(stream, _whole(self.up_proj(stream, self.norm3), self.down_proj))


def _whole(x: Tensor, product: Product) -> Tensor:
    """With as many channels as whole tiles have."""
    missing = product.conv.n_in - x.shape[-1]
    return F.pad(x, (0, missing)) if missing else x


def product_of(slow: nn.Module, library: ctypes.CDLL, *, gelu: bool = False) -> Product:
    """A linear layer or a convolution."""
    layer = cast(nn.Linear, slow)
    return Product(layer.weight, layer.bias, library, gelu=gelu)
