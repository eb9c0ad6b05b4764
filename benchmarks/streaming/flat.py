"""A long text costs as much at its end as at its beginning, in time and in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nightingale.core import SAMPLES_PER_SECOND, SAMPLES_PER_TOKEN
from nightingale.measure import texts
from nightingale.pipeline import Nightingale


def sentences() -> Iterator[str]:
    """Without end."""
    while True:
        for text in texts.read("held_out"):
            yield text + " "


def late_by_early(
    tts: Nightingale, n_tokens: int, rounds: int, early: int = 5, late: int = 50, near: int = 5
) -> list[float]:
    """What windows around a late one cost, each by that of one around an early one of another
    speech, made right before or after it: a machine's good and bad minutes are then the same."""
    ratios = []
    for _ in range(rounds):
        old, young = window_ms(tts, n_tokens), window_ms(tts, n_tokens)
        for costs, n in ((old, late - near), (young, early - near)):
            for _ in range(n):
                next(costs)
        for turn in range(2 * near):
            if turn % 2:
                below, above = next(young), next(old)
            else:
                above, below = next(old), next(young)
            ratios.append(above / below)
    return ratios


def window_ms(tts: Nightingale, n_tokens: int) -> Iterator[float]:
    """What each window of so many tokens of an endless text costs; mel and samples alone."""
    speech = tts.stream(sentences(), seed=1)
    spent = 0.0
    for chunk in speech:
        now = speech.timings.mel_ms + speech.timings.samples_ms
        if len(chunk.samples) == n_tokens * SAMPLES_PER_TOKEN:
            yield now - spent
        spent = now


@dataclass(frozen=True, slots=True)
class Memory:
    """What a process held while it spoke."""

    minutes: list[float]  # of speech
    mb: list[float]

    @property
    def mb_per_hour(self) -> float:
        """The slope, without the first tenth, in which it fills its shelves."""
        start = len(self.minutes) // 10
        slope, _ = np.polyfit(self.minutes[start:], self.mb[start:], 1)
        return float(60 * slope)


def memory(tts: Nightingale, minutes: float) -> Memory:
    """Speak for so long, and look every ten seconds of speech."""
    speech = tts.stream(sentences(), seed=2)
    seen: list[tuple[float, float]] = []
    made_s = looked_s = 0.0
    for chunk in speech:
        made_s += len(chunk.samples) / SAMPLES_PER_SECOND
        if made_s - looked_s >= 10:
            seen.append((made_s / 60, resident_mb()))
            looked_s = made_s
        if made_s > 60 * minutes:
            break
    speech.cancel()
    return Memory([at for at, _ in seen], [mb for _, mb in seen])


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 1e6
