"""The GPT-2 backbone of Turbo and Nano: embeddings in, hidden states out.

Parameter names and the (in, out) order of weights are those of the released files. Knows nothing of
tokens, text or sampling.
"""

from __future__ import annotations

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
from nightingale.nn.deterministic import linear

NORM_EPS = 1e-5


class Gpt2(nn.Module):
    """Pre-norm transformer with learned positions counted over everything that was read."""

    cache_dtype: torch.dtype | None = None  # that of the activations

    def __init__(self, n_layers: int, d_model: int, n_heads: int, d_ffn: int, n_pos: int) -> None:
        super().__init__()
        self.wpe = nn.Embedding(n_pos, d_model)
        self.h = nn.ModuleList(Layer(index, d_model, n_heads, d_ffn) for index in range(n_layers))
        self.ln_f = nn.LayerNorm(d_model, NORM_EPS)

    def forward(
        self, x: Tensor, cache: KVCache | None = None, alignment: Alignment | None = None
    ) -> Tensor:
        """Read (B, T, D) behind what the cache holds; returns the normed last layer, (B, T, D)."""
        start = cache.length if cache else 0
        context = ForwardContext.of(x, cache, alignment)
        x = self._read(x + self.wpe.weight[start : start + x.shape[1]], context)
        if cache is not None:
            cache.advance(x.shape[1])
        return x

    def read_at(self, x: Tensor, positions: Tensor, context: Attends) -> Tensor:
        """Likewise for (B, 1, D), each row at a position of its own, (B,)."""
        return self._read(x + self.wpe.weight[positions][:, None], context)

    def _read(self, x: Tensor, context: Attends) -> Tensor:
        for layer in self.h:
            x = layer(x, context)
        out: Tensor = self.ln_f(x)
        return out


class Layer(nn.Module):
    def __init__(self, index: int, d_model: int, n_heads: int, d_ffn: int) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(d_model, NORM_EPS)
        self.attn = _Attention(index, d_model, n_heads)
        self.ln_2 = nn.LayerNorm(d_model, NORM_EPS)
        self.mlp = _FeedForward(d_model, d_ffn)

    def forward(self, x: Tensor, context: Attends) -> Tensor:
        x = x + self.attn(self.ln_1(x), context)
        return x + self.mlp(self.ln_2(x))


class _Attention(nn.Module):
    def __init__(self, index: int, d_model: int, n_heads: int) -> None:
        super().__init__()
        self.index = index
        self.n_heads = n_heads
        self.c_attn = _InOut(d_model, 3 * d_model)
        self.c_proj = _InOut(d_model, d_model)

    def forward(self, x: Tensor, context: Attends) -> Tensor:
        queries, keys, values = (
            split_heads(part, self.n_heads) for part in self.c_attn(x).chunk(3, dim=-1)
        )
        return self.c_proj(context.attend(self.index, queries, keys, values))


class _FeedForward(nn.Module):
    def __init__(self, d_model: int, d_ffn: int) -> None:
        super().__init__()
        self.c_fc = _InOut(d_model, d_ffn)
        self.c_proj = _InOut(d_ffn, d_model)

    def forward(self, x: Tensor) -> Tensor:
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


class _InOut(nn.Module):
    """A linear layer whose weight is stored (in, out)."""

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(d_in, d_out).normal_(std=0.02))
        self.bias = nn.Parameter(torch.zeros(d_out))

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight.T, self.bias)
