"""Keys and values of the positions that T3 has already read.

Storage is allocated ahead and doubled when it runs out: a step copies only its own position.
Knows nothing of tokens, text or guidance: rows are rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class KVCache:
    """Append while reading, trim to forget, fork to go two ways from one place."""

    def __init__(self, keys: list[Tensor], values: list[Tensor], length: int = 0) -> None:
        self.keys = keys  # one (B, H, capacity, d_head) a layer; behind `length`, anything
        self.values = values
        self.length = length

    @classmethod
    def empty(
        cls, n_layers: int, shape: tuple[int, int, int, int], like: Tensor | None = None
    ) -> KVCache:
        """No positions yet. `shape`: (rows, heads, capacity, d_head); `like`: dtype and device."""
        like = torch.empty(0) if like is None else like
        return cls(
            [like.new_empty(shape) for _ in range(n_layers)],
            [like.new_empty(shape) for _ in range(n_layers)],
        )

    @classmethod
    def join(cls, caches: Sequence[KVCache], capacity: int) -> KVCache:
        """One cache whose rows are the rows of all, which must have read equally many positions."""
        length = caches[0].length
        assert all(cache.length == length for cache in caches)
        rows = sum(cache.n_rows for cache in caches)
        first = caches[0].keys[0]
        shape = (rows, first.shape[1], max(capacity, length), first.shape[3])
        joined = cls.empty(len(caches[0].keys), shape, like=first)
        for layer in range(len(joined.keys)):
            at = 0
            for cache in caches:
                to = slice(at, at + cache.n_rows)
                joined.keys[layer][to, :, :length] = cache.keys[layer][:, :, :length]
                joined.values[layer][to, :, :length] = cache.values[layer][:, :, :length]
                at += cache.n_rows
        joined.length = length
        return joined

    @property
    def n_rows(self) -> int:
        return self.keys[0].shape[0]

    @property
    def capacity(self) -> int:
        return self.keys[0].shape[2]

    @property
    def n_bytes(self) -> int:
        return sum(t.nbytes for t in (*self.keys, *self.values))

    def append(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """Write one layer's new positions behind the read ones; returns all of that layer's.

        The positions count as read only after `advance`, when every layer has written its own.
        """
        end = self.length + keys.shape[2]
        if end > self.keys[layer].shape[2]:
            self._grow(layer, end)
        self.keys[layer][:, :, self.length : end] = keys
        self.values[layer][:, :, self.length : end] = values
        return self.keys[layer][:, :, :end], self.values[layer][:, :, :end]

    def advance(self, n_positions: int) -> None:
        self.length += n_positions

    def trim(self, length: int) -> None:
        """Forget every position from `length` on."""
        assert 0 <= length <= self.length
        self.length = length

    def fork(self, capacity: int, length: int | None = None) -> KVCache:
        """A copy of the first `length` positions (all by default) with room for `capacity`."""
        whole, self.length = self.length, self.length if length is None else length
        assert self.length <= whole
        try:
            return KVCache.join([self], capacity)
        finally:
            self.length = whole

    def reserve(self, n_positions: int) -> None:
        """Make room for so many more, in every layer."""
        for layer in range(len(self.keys)):
            if self.length + n_positions > self.keys[layer].shape[2]:
                self._grow(layer, self.length + n_positions)

    def _grow(self, layer: int, needed: int) -> None:
        for side in (self.keys, self.values):
            old = side[layer]
            rows, heads, capacity, d_head = old.shape
            side[layer] = old.new_empty((rows, heads, max(needed, 2 * capacity), d_head))
            side[layer][:, :, : self.length] = old[:, :, : self.length]
