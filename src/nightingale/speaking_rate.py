"""Speaking rate: mel frames of an utterance in, fewer or more of them out, at the same pitch.

Frame j that is given stands for the time (j + 1/2) x speed of the frames that come, and is mixed
from the two beside it. Times are counted from the beginning of the utterance and never summed up,
so pieces are the whole to the bit, however they are cut. A state says where an utterance stands; a
speed of 1 changes nothing. Knows nothing of models, devices and sound.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from nightingale.core import MAX_SPEED, MIN_SPEED

Frames: TypeAlias = NDArray[np.float32]  # (n_mel, M)


def n_paced(n_frames: int, speed: float) -> int:
    """How many frames an utterance of so many becomes: nearest to what was asked."""
    return math.floor(n_frames / speed + 0.5)


def limited_speed(*speeds: float) -> float:
    """Several at once, such as those of a voice and of a request: their product, as far as it may
    go."""
    return min(MAX_SPEED, max(MIN_SPEED, math.prod(speeds)))


def _no_frames() -> Frames:
    return np.zeros((0, 0), np.float32)


@dataclass(frozen=True, slots=True, eq=False)
class RateState:
    """Where the frames of one utterance stand. Handed along, never changed."""

    speed: float = 1.0
    n_in: int = 0  # frames that came
    n_out: int = 0  # frames that were given
    last: Frames = field(default_factory=_no_frames)  # of those that came: the next may need it


def pace_frames(frames: Frames, state: RateState, *, is_last: bool) -> tuple[Frames, RateState]:
    """The next frames of an utterance in, (n_mel, M) -> those that can be given now, and the state.

    A frame waits for the one behind it, unless there will be none.
    """
    n_in = state.n_in + frames.shape[1]
    if state.speed == 1.0:
        return frames, replace(state, n_in=n_in, n_out=n_in)
    known = np.concatenate((state.last, frames), axis=1) if state.n_in else frames
    first = n_in - known.shape[1]
    n_out = n_paced(n_in, state.speed)
    places = (np.arange(state.n_out, n_out) + 0.5) * state.speed - 0.5
    if not is_last:
        places = places[places < n_in - 1]
    places = places.clip(0, n_in - 1)
    low = np.floor(places).astype(np.int64)
    high = np.minimum(low + 1, n_in - 1)
    weights = (places - low).astype(np.float32)
    given = known[:, low - first] * (1 - weights) + known[:, high - first] * weights
    last = known[:, -1:].copy()
    return given, replace(state, n_in=n_in, n_out=state.n_out + len(places), last=last)
