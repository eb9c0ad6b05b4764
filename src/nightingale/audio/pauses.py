"""Parts of an utterance, joined with the pauses that their text asks for.

A pause is measured from the last audible sample of one part to the first of the next: silence that
the model made itself counts, is shortened or is extended. Inside a part nothing is changed. Silence
at the end of what has come is held back, for it may turn out to be too long; sound never is.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nightingale.audio.audible import first_audible, last_audible
from nightingale.core import SAMPLES_PER_SECOND

Samples = NDArray[np.float32]

LEAD_IN = SAMPLES_PER_SECOND * 20 // 1000  # samples kept before the first audible one, rising
FADE = SAMPLES_PER_SECOND * 10 // 1000  # samples in which a silence that is cut falls to zero
_NOTHING = np.zeros(0, np.float32)


@dataclass(frozen=True, slots=True)
class JoinState:
    """What of the parts so far the next one must know. Small, and can be written to JSON."""

    n_samples: int  # that were given
    n_silent: int  # of them, behind the last audible one
    tail: Samples  # silence that was held back, as far as it can still be used

    def to_json(self) -> dict[str, Any]:
        tail = base64.b64encode(self.tail.astype("<f4").tobytes()).decode()
        return {"n_samples": self.n_samples, "n_silent": self.n_silent, "tail": tail}

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> JoinState:
        tail = np.frombuffer(base64.b64decode(stored["tail"]), "<f4")
        return cls(int(stored["n_samples"]), int(stored["n_silent"]), tail)


def fade_out(samples: Samples) -> Samples:
    """Close a part: its last 20 ms fall to zero, for the vocoder's own end is a click."""
    n = min(LEAD_IN, len(samples))
    return np.concatenate((samples[: len(samples) - n], samples[len(samples) - n :] * _fall(n)))


def _fall(n: int) -> Samples:
    return ((1 + np.cos(np.linspace(0, np.pi, n))) / 2).astype(np.float32)


class PartJoiner:
    """Samples of one part after the other in, samples of the utterance out."""

    def __init__(
        self, least_pause: int, *, trims_start: bool = False, state: JoinState | None = None
    ) -> None:
        """`least_pause`: samples of the shortest pause that may come between two parts."""
        self._n_free = max(0, least_pause - LEAD_IN - FADE)  # silence that can be given at once
        self._trims = trims_start
        self.n_samples = state.n_samples if state else 0  # that were given
        self._n_silent = state.n_silent if state else 0
        self._held = state.tail if state else _NOTHING  # silence behind what was given
        self._is_opening = False  # no audible sample of this part has come
        self._n_fed = 0  # samples of this part
        self.first: int | None = None  # of them, the first audible one, as far as it is known
        self.part_start = 0  # where the first sample of this part would be in the utterance

    @property
    def is_settled(self) -> bool:
        """Whether `part_start` is known."""
        return not self._is_opening

    def start_part(
        self, pause: int, first: int | None = None, *, is_asked: bool = False
    ) -> Samples:
        """The next part comes, so many samples of silence behind the last audible one. Where its
        own `first` is was perhaps found before, of samples that were not quite the same.

        Before the first part there is a pause only if it was asked for.
        """
        if self._is_opening:
            self._held = _NOTHING  # the part before was silence
        is_first = self.n_samples == 0 and not len(self._held) and not is_asked
        silence = _NOTHING if is_first else self._pause(pause)
        self._held, self._n_fed, self.first = _NOTHING, 0, first
        self._is_opening = self._trims or not is_first
        given = self._give(silence)
        self.part_start = self.n_samples
        return given

    def feed(self, samples: Samples) -> Samples:
        """More of the part; returns what can be given now."""
        self._n_fed += len(samples)
        known = np.concatenate((self._held, samples))
        if self._is_opening:
            n_past = self._n_fed - len(known)
            first = first_audible(known) if self.first is None else self.first - n_past
            if first is None or first >= len(known):
                self._held = known[-LEAD_IN:]
                return _NOTHING
            self.first = n_past + first
            known = self._open(known, first)
        last = last_audible(known)
        n_ready = self._n_free + (-self._n_silent if last is None else last + 1)
        n_ready = min(len(known), max(0, n_ready))
        self._held = known[n_ready:]
        return self._give(known[:n_ready])

    def end_pause(self, pause: int) -> Samples:
        """No part follows, but so many samples of silence behind the last audible one."""
        silence = self._pause(pause + LEAD_IN)
        self._held = _NOTHING
        return self._give(silence)

    def finish(self) -> Samples:
        """No part follows: what was held back ends the utterance."""
        held, self._held = self._held, _NOTHING
        return self._give(held)

    @property
    def state(self) -> JoinState:
        """Between two parts."""
        tail = _NOTHING if self._is_opening else self._held[:FADE]
        return JoinState(self.n_samples, self._n_silent, tail)

    def _pause(self, n_samples: int) -> Samples:
        tail = self._held[:FADE]
        tail = tail * _fall(len(tail))
        n_zeros = max(0, n_samples - self._n_silent - len(tail) - LEAD_IN)
        return np.concatenate((tail, np.zeros(n_zeros, np.float32)))

    def _open(self, known: Samples, first: int) -> Samples:
        """From LEAD_IN before the first audible sample on, which rises from zero."""
        self._is_opening = False
        lead = known[max(0, first - LEAD_IN) : first]
        n_missing = LEAD_IN - len(lead)
        self.part_start = self.n_samples + LEAD_IN - (self._n_fed - len(known) + first)
        padded = np.concatenate((np.zeros(n_missing, np.float32), lead)) * _fall(LEAD_IN)[::-1]
        return np.concatenate((padded, known[first:]))

    def _give(self, samples: Samples) -> Samples:
        last = last_audible(samples)
        self._n_silent = self._n_silent + len(samples) if last is None else len(samples) - last - 1
        self.n_samples += len(samples)
        return samples
