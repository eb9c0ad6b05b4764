"""The one attention call of both backbones, and the window through which alignment is watched."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from nightingale.backends.torch.t3.cache import KVCache

Heads = tuple[tuple[int, int], ...]  # (layer, head) pairs


@dataclass(slots=True)
class Alignment:
    """Where in the text some heads looked when each token was made.

    Filled while decoding, when asked for: `rows[i]` belongs to token i. Only the named heads are
    computed for it, beside the ordinary attention, which stays as fast as it is.
    """

    heads: Heads
    text: tuple[int, int] = (0, 0)  # first position of the text and the one behind it
    rows: list[Tensor] = field(default_factory=list)  # (heads, text positions) each
    _seen: dict[tuple[int, int], Tensor] = field(default_factory=dict)

    def look(self, layer: int, queries: Tensor, keys: Tensor) -> None:
        """Note how the last position of the first row attends, in this layer's watched heads."""
        for watched, head in self.heads:
            if watched == layer:
                query = queries[0, head, -1]  # (d_head,)
                scores = keys[0, head] @ query / query.shape[0] ** 0.5  # (T,)
                self.note((layer, head), scores.float().softmax(-1))

    def note(self, pair: tuple[int, int], weights: Tensor) -> None:
        """How a head attends to everything that was read, (T,)."""
        self._seen[pair] = weights[slice(*self.text)]

    def close_row(self) -> None:
        """The step is over: its heads become one row."""
        self.rows.append(torch.stack([self._seen[pair] for pair in self.heads]))


def causal_mask(n_new: int, n_all: int, device: torch.device) -> Tensor | None:
    """Each new position sees everything up to itself; a single one needs no mask."""
    if n_new == 1:
        return None
    return torch.ones(n_new, n_all, dtype=torch.bool, device=device).tril(n_all - n_new)


class Attends(Protocol):
    """What layers ask of whoever keeps keys and values."""

    def attend(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """(B, H, T, d_head) in, (B, T, D) out, causal over what was read before and what is new."""


@dataclass(frozen=True, slots=True)
class ForwardContext:
    """What the layers share during one forward pass; without a cache, everything is new."""

    cache: KVCache | None
    mask: Tensor | None
    alignment: Alignment | None

    @classmethod
    def of(cls, x: Tensor, cache: KVCache | None, alignment: Alignment | None) -> ForwardContext:
        n_new = x.shape[1]
        n_all = n_new + (cache.length if cache else 0)
        return cls(cache, causal_mask(n_new, n_all, x.device), alignment)

    def attend(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """(B, H, T, d_head) in, (B, T, D) out, causal over what was read before and what is new."""
        if self.cache is not None:
            keys, values = self.cache.append(layer, keys, values)
        if self.alignment is not None:
            self.alignment.look(layer, queries, keys)
        out = F.scaled_dot_product_attention(queries, keys, values, attn_mask=self.mask)
        return out.transpose(1, 2).flatten(2)


def split_heads(x: Tensor, n_heads: int) -> Tensor:
    """(B, T, D) -> (B, H, T, d_head)"""
    return x.view(*x.shape[:-1], n_heads, -1).transpose(1, 2)
