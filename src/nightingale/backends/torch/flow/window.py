"""How frames see those before them: what one pass leaves behind, and how the next one takes it up.

Convolutions need the last few frames of their input, attention the keys and values of everything
that may be looked at. Layers ask in the order in which they are computed, which is always the same,
so nothing needs a name. Knows nothing of layers, voices or schedules.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import torch
import torch.nn.functional as F
from torch import Tensor

# queries (B, H, T, D/H), and keys and values of all that they may look at -> as the queries
Attention = Callable[[Tensor, list[Tensor], list[Tensor]], Tensor]


@dataclass(frozen=True, slots=True, eq=False)
class LayerCaches:
    """What a pass over some frames leaves for the passes over those that follow."""

    tails: list[Tensor] = field(default_factory=list)  # (B, n, D) of each convolution's input
    keys: list[Tensor] = field(default_factory=list)  # of each attention, as it has them
    values: list[Tensor] = field(default_factory=list)

    @property
    def n_bytes(self) -> int:
        return sum(t.nbytes for t in (*self.tails, *self.keys, *self.values))

    def mapped(self, function: Callable[[Tensor], Tensor]) -> LayerCaches:
        parts = (self.tails, self.keys, self.values)
        return LayerCaches(*([function(t) for t in part] for part in parts))


@dataclass(slots=True, eq=False)
class StepCaches:
    """What rendering some frames leaves for those that follow: the caches of every step."""

    known: LayerCaches = field(default_factory=LayerCaches)  # of what is the same in all steps
    steps: list[LayerCaches] = field(default_factory=list)

    @property
    def n_bytes(self) -> int:
        return self.known.n_bytes + sum(caches.n_bytes for caches in self.steps)

    def mapped(self, function: Callable[[Tensor], Tensor]) -> StepCaches:
        return StepCaches(self.known.mapped(function), [it.mapped(function) for it in self.steps])


@dataclass(frozen=True, slots=True, eq=False)
class FlowState:
    """Where the rendering of an utterance stands: what its windows so far left for the next.

    The first of each is the voice's recording. Handed along, never changed: a state can be kept,
    and continued from more than once.
    """

    encoded: tuple[LayerCaches, ...]
    rendered: tuple[StepCaches, ...]
    n_frames: int = 0  # of the utterance, so far

    @property
    def n_bytes(self) -> int:
        rendered = sum(steps.n_bytes for steps in self.rendered)
        return rendered + sum(caches.n_bytes for caches in self.encoded)

    def without_prompt(self) -> FlowState:
        """The windows alone: the recording is the voice's, and is computed from it again."""
        return replace(self, encoded=self.encoded[1:], rendered=self.rendered[1:])

    def mapped(self, function: Callable[[Tensor], Tensor]) -> FlowState:
        """The same with every tensor replaced."""
        encoded = tuple(caches.mapped(function) for caches in self.encoded)
        rendered = tuple(steps.mapped(function) for steps in self.rendered)
        return replace(self, encoded=encoded, rendered=rendered)

    def with_prompt(self, prompt: FlowState) -> FlowState:
        """The opposite."""
        encoded, rendered = prompt.encoded + self.encoded, prompt.rendered + self.rendered
        return replace(self, encoded=encoded, rendered=rendered)

    def followed_by(
        self, caches: LayerCaches, steps: StepCaches, n_frames: int, n_kept: int
    ) -> FlowState:
        """One window further; besides the recording, only the last `n_kept` stay in sight."""
        encoded = (*self.encoded[1:], caches)[-n_kept:]
        rendered = (*self.rendered[1:], steps)[-n_kept:]
        return FlowState(
            (self.encoded[0], *encoded), (self.rendered[0], *rendered), self.n_frames + n_frames
        )


def alone(attention: Attention, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
    """Attention of frames that have none before them, and leave nothing."""
    return attention(queries, [keys], [values])


def joined(parts: list[Tensor]) -> Tensor:
    """Keys or values, (B, H, T, D/H), of one window after the other."""
    return torch.cat(parts, dim=2) if len(parts) > 1 else parts[0]


class Window:
    """One pass over frames that follow others; without any before them, they are the first."""

    def __init__(self, before: Sequence[LayerCaches] = (), left: LayerCaches | None = None) -> None:
        self.before = before
        self.left = left  # is filled
        self._n_tails = self._n_attentions = 0

    def past(self, x: Tensor, n: int) -> Tensor:
        """(B, T, D) -> (B, n + T, D): x behind the n frames before it; before the first, zeros."""
        if self.before:
            joined = torch.cat((self.before[-1].tails[self._n_tails], x), dim=1)
        else:
            joined = F.pad(x, (0, 0, n, 0))
        if self.left is not None:
            self.left.tails.append(joined[:, -n:].clone())
        self._n_tails += 1
        return joined

    def reach(self, keys: Tensor, values: Tensor) -> tuple[list[Tensor], list[Tensor]]:
        """Keys and values of all frames before these, and of these at the end."""
        if self.left is not None:
            self.left.keys.append(keys.contiguous())
            self.left.values.append(values.contiguous())
        at = self._n_attentions
        self._n_attentions += 1
        return (
            [*(caches.keys[at] for caches in self.before), keys],
            [*(caches.values[at] for caches in self.before), values],
        )

    def attend(self, attention: Attention, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Attention of these frames to themselves and to all before them."""
        return attention(queries, *self.reach(keys, values))


class JointWindow:
    """Windows of several requests in one pass: rows of the first, then those of the second, ...

    Each has its own frames before it, and attends for itself, so nothing of one reaches another.
    Rows behind the last request's are there for the shape alone, and attend to nothing.
    """

    def __init__(self, windows: Sequence[Window], n_requests: int) -> None:
        self._windows, self.n_requests = windows, n_requests  # with those for the shape

    def past(self, x: Tensor, n: int) -> Tensor:
        """As `Window.past`, for the rows of all."""
        rows = x.chunk(self.n_requests)
        joined = [window.past(row, n) for window, row in zip(self._windows, rows, strict=False)]
        if len(unused := self._unused(x)):
            joined.append(F.pad(unused, (0, 0, n, 0)))
        return torch.cat(joined)

    def attend(self, attention: Attention, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """As `Window.attend`, for the rows of all."""
        rows = zip(*(x.chunk(self.n_requests) for x in (queries, keys, values)), strict=True)
        heard = [
            window.attend(attention, *row) for window, row in zip(self._windows, rows, strict=False)
        ]
        if len(unused := self._unused(queries)):
            heard.append(torch.zeros_like(unused))
        return torch.cat(heard)

    def _unused(self, x: Tensor) -> Tensor:
        return x[len(x) // self.n_requests * len(self._windows) :]


AnyWindow = Window | JointWindow


def joint(windows: Sequence[Window], n_requests: int) -> AnyWindow:
    """One is a window like any other."""
    return windows[0] if n_requests == 1 else JointWindow(windows, n_requests)
