"""A long text costs as much at its end as at its beginning, in time and in memory."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from nightingale.core import SAMPLES_PER_SECOND, SAMPLES_PER_TOKEN
from nightingale.measure import texts
from nightingale.pipeline import Nightingale

NEAR = 2  # windows on either side whose median stands for one


def sentences() -> Iterator[str]:
    """Without end."""
    while True:
        for text in texts.read("held_out"):
            yield text + " "


def window_ms(engine: Nightingale, seconds: float, n_tokens: int, rounds: int) -> list[float]:
    """What each window of so many tokens costs, medians over rounds; mel and samples alone."""
    runs = []
    for _ in range(rounds):
        costs: list[float] = []
        speech = engine.stream(sentences(), seed=1)
        spent = made_s = 0.0
        for chunk in speech:
            made_s += len(chunk.samples) / SAMPLES_PER_SECOND
            now = speech.clock.spent_ms["mel_ms"] + speech.clock.spent_ms["samples_ms"]
            if len(chunk.samples) == n_tokens * SAMPLES_PER_TOKEN:
                costs.append(now - spent)
            spent = now
            if made_s > seconds:
                break
        speech.cancel()
        runs.append(costs)
    n = min(map(len, runs))
    return [statistics.median(run[at] for run in runs) for at in range(n)]


def ratio(costs: list[float], early: int, late: int) -> float:
    """A late window beside an early one."""
    return _near(costs, late) / _near(costs, early)


def _near(costs: list[float], at: int) -> float:
    return statistics.median(costs[max(0, at - NEAR) : at + NEAR + 1])


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


def memory(engine: Nightingale, minutes: float) -> Memory:
    """Speak for so long, and look every ten seconds of speech."""
    speech = engine.stream(sentences(), seed=2)
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
