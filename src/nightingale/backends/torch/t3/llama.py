"""The Llama backbone of English and Multilingual: embeddings in, hidden states out.

Parameter names are those of the released files. Knows nothing of tokens, text or sampling.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nightingale.backends.torch.t3.attention import (
    Alignment,
    Attends,
    ForwardContext,
    split_heads,
)
from nightingale.backends.torch.t3.cache import KVCache
from nightingale.nn.deterministic import Linear
from nightingale.nn.device import HOST

ROPE_THETA = 500_000.0
ROPE_FACTOR = 8.0  # "llama3" scaling: how much the slow waves are stretched ...
ROPE_LONGEST, ROPE_SHORTEST = 8192 / 1.0, 8192 / 4.0  # ... and between which wavelengths it sets in
NORM_EPS = 1e-5


class Llama(nn.Module):
    """Pre-norm transformer with rotary positions counted over everything that was read."""

    cache_dtype: torch.dtype | None = None  # that of the activations

    def __init__(self, n_layers: int, d_model: int, n_heads: int, d_ffn: int, n_pos: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            Layer(index, d_model, n_heads, d_ffn) for index in range(n_layers)
        )
        self.norm = nn.RMSNorm(d_model, NORM_EPS)
        cos, sin = rotary_tables(d_model // n_heads, n_pos)
        self.register_buffer("cos", cos, persistent=False)
        left, right = sin.chunk(2, dim=-1)
        self.register_buffer("sin", torch.cat((-left, right), dim=-1), persistent=False)
        self.cos: Tensor
        self.sin: Tensor

    def forward(
        self, x: Tensor, cache: KVCache | None = None, alignment: Alignment | None = None
    ) -> Tensor:
        """Read (B, T, D) behind what the cache holds; returns the normed last layer, (B, T, D)."""
        start = cache.length if cache else 0
        here = slice(start, start + x.shape[1])
        x = self._read(x, (self.cos[here], self.sin[here]), ForwardContext.of(x, cache, alignment))
        if cache is not None:
            cache.advance(x.shape[1])
        return x

    def read_at(self, x: Tensor, positions: Tensor, context: Attends) -> Tensor:
        """Likewise for (B, 1, D), each row at a position of its own, (B,)."""
        here = positions[:, None, None]  # (B, 1, 1): all heads, one position
        return self._read(x, (self.cos[here], self.sin[here]), context)

    def _read(self, x: Tensor, rotation: tuple[Tensor, Tensor], context: Attends) -> Tensor:
        rotation = rotation[0].to(x.dtype), rotation[1].to(x.dtype)
        for layer in self.layers:
            x = layer(x, rotation, context)
        out: Tensor = self.norm(x)
        return out


class Layer(nn.Module):
    def __init__(self, index: int, d_model: int, n_heads: int, d_ffn: int) -> None:
        super().__init__()
        self.self_attn = _Attention(index, d_model, n_heads)
        self.mlp = _FeedForward(d_model, d_ffn)
        self.input_layernorm = nn.RMSNorm(d_model, NORM_EPS)
        self.post_attention_layernorm = nn.RMSNorm(d_model, NORM_EPS)

    def forward(self, x: Tensor, rotation: tuple[Tensor, Tensor], context: Attends) -> Tensor:
        x = x + self.self_attn(self.input_layernorm(x), rotation, context)
        return x + self.mlp(self.post_attention_layernorm(x))


class _Attention(nn.Module):
    def __init__(self, index: int, d_model: int, n_heads: int) -> None:
        super().__init__()
        self.index = index
        self.n_heads = n_heads
        self.q_proj = Linear(d_model, d_model, bias=False)
        self.k_proj = Linear(d_model, d_model, bias=False)
        self.v_proj = Linear(d_model, d_model, bias=False)
        self.o_proj = Linear(d_model, d_model, bias=False)

    def forward(self, x: Tensor, rotation: tuple[Tensor, Tensor], context: Attends) -> Tensor:
        queries = rotate(split_heads(self.q_proj(x), self.n_heads), *rotation)
        keys = rotate(split_heads(self.k_proj(x), self.n_heads), *rotation)
        values = split_heads(self.v_proj(x), self.n_heads)
        return self.o_proj(context.attend(self.index, queries, keys, values))


class _FeedForward(nn.Module):
    def __init__(self, d_model: int, d_ffn: int) -> None:
        super().__init__()
        self.gate_proj = Linear(d_model, d_ffn, bias=False)
        self.up_proj = Linear(d_model, d_ffn, bias=False)
        self.down_proj = Linear(d_ffn, d_model, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn each pair (i, i + d_head / 2) of (B, H, T, d_head) by its position's angle.

    The first half of `sin` is negative: the left of a pair becomes left * cos - right * sin.
    """
    left, right = x.chunk(2, dim=-1)
    return x * cos + torch.cat((right, left), dim=-1) * sin


def rotary_tables(d_head: int, n_pos: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines of every position, (n_pos, d_head) each.

    The device is named so that the tables are real even in a model whose weights are yet to come.
    """
    position = torch.arange(n_pos, dtype=torch.float32, device=HOST)
    angle = torch.outer(position, rotary_frequencies(d_head))
    both = torch.cat((angle, angle), dim=-1)
    return both.cos(), both.sin()


def rotary_frequencies(d_head: int) -> Tensor:
    """Angle per position of each pair: short waves as they are, long ones stretched."""
    exponent = torch.arange(0, d_head, 2, dtype=torch.float32, device=HOST) / d_head
    frequency = 1.0 / ROPE_THETA**exponent
    wavelength = 2 * math.pi / frequency
    ramp = (ROPE_LONGEST / wavelength - 1) / (ROPE_LONGEST / ROPE_SHORTEST - 1)
    ramp = ramp.clamp(0, 1)
    return (1 - ramp) * frequency / ROPE_FACTOR + ramp * frequency
