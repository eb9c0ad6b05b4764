"""Which samples a listener can hear: the one definition that reports, metrics and pauses share."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nightingale.core import SAMPLES_PER_SECOND

AUDIBLE = 0.01  # of full scale: 40 dB below the loudest sample that there can be


def first_audible(samples: NDArray[np.float32]) -> int | None:
    """The index of the first sample that can be heard, or None if all of them are silence."""
    heard = np.flatnonzero(np.abs(samples) > AUDIBLE)
    return int(heard[0]) if len(heard) else None


def last_audible(samples: NDArray[np.float32]) -> int | None:
    """Likewise the last one."""
    heard = np.flatnonzero(np.abs(samples) > AUDIBLE)
    return int(heard[-1]) if len(heard) else None


class FirstAudible:
    """When a listener who plays chunks as they arrive hears the first audible sample.

    Arrival times may be counted from anywhere (a request, a clock's zero): `at_s` is counted alike.
    """

    def __init__(self) -> None:
        self.at_s: float | None = None  # None: only silence so far
        self.played_s = 0.0  # when all that has arrived is played
        self._has_begun = False

    def note(self, samples: NDArray[np.float32], arrived_s: float) -> None:
        """A chunk has arrived."""
        if self.at_s is not None or not len(samples):
            return
        begun_s = max(self.played_s, arrived_s) if self._has_begun else arrived_s
        self._has_begun = True
        first = first_audible(samples)
        if first is not None:
            self.at_s = begun_s + first / SAMPLES_PER_SECOND
        self.played_s = begun_s + len(samples) / SAMPLES_PER_SECOND
