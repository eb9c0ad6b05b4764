"""A listener starts when the rest can be made in time, and not later."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from nightingale.core import AudioChunk
from nightingale.pace import Paced, expected_seconds, lead_s


class Studio:
    """Makes `n` chunks of half a second; each takes `rtf` times as long, the first a second."""

    def __init__(self, rtf: float, n: int = 20) -> None:
        self.rtf, self.n, self.now = rtf, n, 0.0

    def chunks(self) -> Iterator[AudioChunk]:
        for number in range(self.n):
            self.now += 1.0 if number == 0 else 0.5 * self.rtf
            yield AudioChunk(np.full(12_000, number, np.float32))


def starts(rtf: float, known: float | None) -> tuple[float, bool]:
    """When playing starts, and whether it would then ever have to stop."""
    studio = Studio(rtf)
    paced = Paced(studio.chunks(), studio.n / 2, known, clock=lambda: studio.now)
    began, heard_s, is_smooth, numbers = -1.0, 0.0, True, []
    for chunk in paced:
        began = studio.now if began < 0 else began
        is_smooth &= studio.now - began <= heard_s + 1e-9
        heard_s += 0.5
        numbers.append(int(chunk.samples[0]))
    assert numbers == list(range(studio.n))  # nothing lost, nothing changed
    return began, is_smooth


@pytest.mark.parametrize("rtf", [0.2, 0.7, 0.95])
def test_who_is_fast_starts_at_once(rtf: float) -> None:
    assert starts(rtf, known=rtf) == (1.0, True)


def test_who_does_not_know_waits_for_one_more() -> None:
    assert starts(0.5, known=None) == (1.25, True)


@pytest.mark.parametrize("rtf", [1.2, 2.0, 5.0])
@pytest.mark.parametrize("is_known", [True, False])
def test_who_is_slow_waits_and_then_never_stops(rtf: float, is_known: bool) -> None:
    began, is_smooth = starts(rtf, rtf if is_known else None)
    assert is_smooth
    at_most = 1.0 + rtf * (lead_s(rtf, 10.0, 0.5) + 0.5)
    assert 1.0 < began <= at_most


def test_a_wrong_belief_is_corrected_by_the_second_chunk() -> None:
    """Fast before, slow now: the first chunk is out already, so this one stutters, once."""
    began, is_smooth = starts(2.0, known=0.5)
    assert began == 1.0
    assert not is_smooth


def test_the_lead_and_the_length() -> None:
    assert lead_s(0.5, 100, 1) == 0
    assert lead_s(2.0, 10, 1) == pytest.approx(5.5)
    assert lead_s(0.0, 10, 1) == 0
    assert expected_seconds("x" * 150) == pytest.approx(10)
