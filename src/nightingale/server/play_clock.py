"""What somebody hears who plays a stream as it comes: when it begins, and where it stops."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nightingale.audio.audible import FirstAudible
from nightingale.core import SAMPLES_PER_SECOND

NOTICED_S = 0.1  # a shorter gap is covered by any player's own buffer

Samples = NDArray[np.float32]


class PlayClock:
    """What somebody would notice who plays the sound as it is given, from the first sample on."""

    def __init__(self, asked_at: float) -> None:
        self.asked_at = asked_at
        self._gaps_s: list[float] = []
        self._dry_at: float | None = None
        self._first = FirstAudible()

    def note(self, samples: Samples, at: float, is_excused: bool = False) -> None:
        """Given then. A gap is excused if the listener or the writer was the slow one."""
        self._first.note(samples, at - self.asked_at)
        if self._dry_at is not None and at > self._dry_at and not is_excused:
            self._gaps_s.append(at - self._dry_at)
        self._dry_at = max(at, self._dry_at or at) + len(samples) / SAMPLES_PER_SECOND

    def left_s(self, now: float) -> float:
        """Seconds until all that was given is played; below zero: since then."""
        return 0.0 if self._dry_at is None else self._dry_at - now

    @property
    def first_s(self) -> float | None:
        """From the request to the first audible sample."""
        return self._first.at_s

    @property
    def gaps_s(self) -> list[float]:
        """Those that are noticed."""
        return [gap for gap in self._gaps_s if gap > NOTICED_S]
