"""What should sound: embedded tokens in, twice as many hidden frames out.

Transformer blocks at the rate of tokens, then at the rate of frames, with relative positions and
full attention: every token has a say in every frame. Knows nothing of ids, voices or mel.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nightingale.backends.torch.flow.conv import CausalConv, each
from nightingale.backends.torch.flow.window import AnyWindow, alone, joined
from nightingale.core import FRAMES_PER_TOKEN
from nightingale.nn.deterministic import Linear, convolve
from nightingale.nn.device import HOST

LOOKAHEAD_TOKENS = 3  # tokens that the convolution at the entrance sees to the right
SLOWEST = 10_000.0  # wavelength of the slowest position wave, in 2 pi
NORM_EPS = 1e-5
BLOCK_NORM_EPS = 1e-12
Waves = Callable[[int], Tensor]  # by the number of positions before: those of `distance_waves`


@dataclass(frozen=True, slots=True)
class EncoderConfig:
    """The sizes of the encoder; the released ones are the defaults."""

    d_model: int = 512
    n_heads: int = 8
    d_ffn: int = 2048
    n_layers: int = 6  # at the rate of tokens
    n_up_layers: int = 4  # at the rate of frames


class Encoder(nn.Module):
    """(B, T, D) -> (B, 2 T, D)"""

    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        width = config.d_model
        self.embed = InputProjection(width)
        self.pre_lookahead_layer = LookAhead(width)
        self.encoders = nn.ModuleList(EncoderBlock(config) for _ in range(config.n_layers))
        self.up_layer = _Upsample(width)
        self.up_embed = InputProjection(width)
        self.up_encoders = nn.ModuleList(EncoderBlock(config) for _ in range(config.n_up_layers))
        self.after_norm = nn.LayerNorm(width, NORM_EPS)

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        *,
        n_ahead: int = 0,
        window: AnyWindow | None = None,
    ) -> Tensor:
        """`mask`, (T, T), says which token may look (rows) at which (columns); without it, all.

        The last `n_ahead` tokens are only looked at: they belong to the next window.
        """
        x = self.pre_lookahead_layer(self.embed(x), n_ahead, window)
        x = _through(self.encoders, x, mask, window)
        x = self.up_embed(self.up_layer(x, window))
        x = _through(self.up_encoders, x, None if mask is None else frame_mask(mask), window)
        return self.after_norm(x)


class LookAhead(nn.Module):
    """Lets a token see its next three; beyond the end there is silence."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv1d(d_model, d_model, LOOKAHEAD_TOKENS + 1)
        self.conv2 = CausalConv(d_model, d_model, 3)

    def forward(self, x: Tensor, n_ahead: int = 0, window: AnyWindow | None = None) -> Tensor:
        assert n_ahead in (0, LOOKAHEAD_TOKENS)
        padded = F.pad(x.transpose(1, 2), (0, LOOKAHEAD_TOKENS - n_ahead))
        conv = self.conv1
        ahead = each(lambda rows: convolve(rows, conv.weight, conv.bias), padded, window)
        here = x[:, : x.shape[1] - n_ahead]
        return here + self.conv2(F.leaky_relu(ahead).transpose(1, 2), window)


class InputProjection(nn.Module):
    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.out = nn.Sequential(Linear(d_model, d_model), nn.LayerNorm(d_model, NORM_EPS))
        self.scale = math.sqrt(d_model)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(x) * self.scale


class _Upsample(nn.Module):
    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.conv = CausalConv(d_model, d_model, 2 * FRAMES_PER_TOKEN + 1)

    def forward(self, x: Tensor, window: AnyWindow | None = None) -> Tensor:
        return self.conv(x.repeat_interleave(FRAMES_PER_TOKEN, dim=1), window)


class EncoderBlock(nn.Module):
    def __init__(self, config: EncoderConfig) -> None:
        super().__init__()
        width = config.d_model
        self.self_attn = RelativeAttention(width, config.n_heads)
        self.feed_forward = _FeedForward(width, config.d_ffn)
        self.norm_mha = nn.LayerNorm(width, BLOCK_NORM_EPS)
        self.norm_ff = nn.LayerNorm(width, BLOCK_NORM_EPS)

    def forward(
        self, x: Tensor, waves: Waves, mask: Tensor | None, window: AnyWindow | None
    ) -> Tensor:
        x = x + self.self_attn(self.norm_mha(x), waves, mask, window)
        return x + self.feed_forward(self.norm_ff(x), window)


class RelativeAttention(nn.Module):
    """Scores are (query + u) . key + (query + v) . distance.

    A bias of the keys would add the same to all scores of a query, and softmax would not see it:
    the released one is not carried along.
    """

    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.linear_q = Linear(d_model, d_model)
        self.linear_k = Linear(d_model, d_model, bias=False)
        self.linear_v = Linear(d_model, d_model)
        self.linear_out = Linear(d_model, d_model)
        self.linear_pos = Linear(d_model, d_model, bias=False)
        self.pos_bias_u = nn.Parameter(torch.zeros(n_heads, d_model // n_heads))
        self.pos_bias_v = nn.Parameter(torch.zeros(n_heads, d_model // n_heads))

    def forward(
        self, x: Tensor, waves: Waves, mask: Tensor | None = None, window: AnyWindow | None = None
    ) -> Tensor:
        """(B, T, D) -> (B, T, D)"""
        queries = self._heads(self.linear_q(x))  # (B, H, T, D/H)
        keys, values = self._heads(self.linear_k(x)), self._heads(self.linear_v(x))
        distances = functools.cache(lambda n: self._heads(self.linear_pos(waves(n))))

        def attention(queries: Tensor, keys: list[Tensor], values: list[Tensor]) -> Tensor:
            all_keys, all_values = joined(keys), joined(values)
            by_content = queries + self.pos_bias_u[:, None]
            by_distance = (queries + self.pos_bias_v[:, None]) * queries.shape[-1] ** -0.5
            apart = distances(all_keys.shape[2] - queries.shape[2])  # (H, T + T', D/H)
            scores = align_distances(by_distance @ apart.mT)  # (B, H, T, T')
            if mask is not None:
                scores = scores.masked_fill(~mask, -math.inf)
            if scores.device != HOST:
                # A view that starts anywhere: CUDA kernels read 16 bytes and check only strides.
                scores = scores.contiguous()
            return F.scaled_dot_product_attention(
                by_content, all_keys, all_values, attn_mask=scores
            )

        attend = window.attend if window is not None else alone
        out = attend(attention, queries, keys, values)
        return self.linear_out(out.transpose(1, 2).flatten(2))

    def _heads(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:-1], self.n_heads, -1).transpose(-3, -2)


class _FeedForward(nn.Module):
    def __init__(self, d_model: int, d_ffn: int) -> None:
        super().__init__()
        self.w_1 = Linear(d_model, d_ffn)
        self.w_2 = Linear(d_ffn, d_model)

    def forward(self, x: Tensor, window: AnyWindow | None = None) -> Tensor:
        return self.w_2(each(F.silu, self.w_1(x), window))


def distance_waves(n: int, d_model: int, n_before: int = 0) -> Tensor:
    """(2 n + n_before, D): sines and cosines, taking turns, of all distances from n new positions
    to themselves and those before them: n + n_before - 1 down to -n.

    Between n positions no distance is -n; with it, `align_distances` is a view.
    """
    exponent = torch.arange(0, d_model, 2, dtype=torch.float32, device=HOST)
    frequency = torch.exp(exponent * -(math.log(SLOWEST) / d_model))
    farthest = n + n_before - 1
    distance = torch.arange(farthest, -n - 1, -1, dtype=torch.float32, device=HOST)
    angle = torch.outer(distance, frequency)
    return torch.stack((angle.sin(), angle.cos()), dim=-1).flatten(1)


def align_distances(scores: Tensor) -> Tensor:
    """(..., T, T + T') by query and distance -> (..., T, T') by query and key.

    Query i of the T new ones and key j are T' - T + i - j apart, which stands in column T - 1 - i +
    j: each row begins one column earlier than the one before, so that in the flattened whole the
    rows are T + T' - 1 apart.
    """
    n = scores.shape[-2]
    apart = scores.shape[-1] - 1
    rows = scores.flatten(-2)[..., n - 1 : n - 1 + n * apart]
    return rows.view(*rows.shape[:-1], n, apart)[..., : apart + 1 - n]


def frame_mask(mask: Tensor) -> Tensor:
    """Who may look at whom, (T, T) by token -> (2 T, 2 T) by frame."""
    for dim in (0, 1):
        mask = mask.repeat_interleave(FRAMES_PER_TOKEN, dim)
    return mask


def _through(
    blocks: nn.ModuleList, x: Tensor, mask: Tensor | None, window: AnyWindow | None
) -> Tensor:
    waves = functools.cache(lambda n_before: distance_waves(x.shape[1], x.shape[2], n_before).to(x))
    for block in blocks:
        x = block(x, waves, mask, window)
    return x
