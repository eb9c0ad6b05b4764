"""How frames see those before them: `flow.window.Window` of the torch backend, on MLX arrays.

What a pass leaves is kept in the same classes, so that states are handed along, cut and written
to bytes by the same code.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from nightingale.backends.torch.flow.window import LayerCaches, StepCaches


class Window:
    """One pass over frames that follow others; without any before them, they are the first."""

    def __init__(self, before: Sequence[LayerCaches] = (), left: LayerCaches | None = None) -> None:
        self._before: Sequence[Any] = before
        self._left: Any = left  # is filled
        self._n_tails = self._n_attentions = 0

    def past(self, x: mx.array, n: int) -> mx.array:
        """(B, T, D) -> (B, n + T, D): x behind the n frames before it; before the first, zeros."""
        if self._before:
            joined = mx.concatenate([self._before[-1].tails[self._n_tails], x], axis=1)
        else:
            joined = mx.pad(x, [(0, 0), (n, 0), (0, 0)])
        if self._left is not None:
            self._left.tails.append(mx.contiguous(joined[:, -n:]))
        self._n_tails += 1
        return joined

    def reach(self, keys: mx.array, values: mx.array) -> tuple[mx.array, mx.array]:
        """Keys and values of all frames before these, and of these at the end."""
        if self._left is not None:
            self._left.keys.append(keys)
            self._left.values.append(values)
        at = self._n_attentions
        self._n_attentions += 1
        if not self._before:
            return keys, values
        return (
            mx.concatenate([*(caches.keys[at] for caches in self._before), keys], axis=2),
            mx.concatenate([*(caches.values[at] for caches in self._before), values], axis=2),
        )

    @property
    def n_before(self) -> int:
        """Frames that the next attention sees before its own."""
        return sum(caches.keys[self._n_attentions].shape[2] for caches in self._before)


def arrays_of(*caches: LayerCaches | StepCaches) -> list[Any]:
    """All that they hold, to be computed at once."""
    found: list[Any] = []
    for one in caches:
        layers = [one.known, *one.steps] if isinstance(one, StepCaches) else [one]
        found += [a for layer in layers for a in (*layer.tails, *layer.keys, *layer.values)]
    return found
