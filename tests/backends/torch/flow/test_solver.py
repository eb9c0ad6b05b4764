"""Schedules as the released decoders were made for, and how the estimator is told the time."""

from __future__ import annotations

import math

import pytest
import torch

from nightingale.backends.torch.flow.estimator import ResnetBlock, time_waves
from nightingale.backends.torch.flow.solver import MEANFLOW, STANDARD, Schedule, guide
from nightingale.errors import OptionError
from tests.backends.torch.flow.random_weights import randomize

COSINE = [0, 0.012312, 0.048943, 0.108993, 0.190983, 0.292893, 0.412215, 0.546009, 0.690983,
          0.843566, 1]  # fmt: skip


@pytest.mark.parametrize(("schedule", "times"), [(STANDARD, COSINE), (MEANFLOW, [0, 0.5, 1])])
def test_times_are_those_of_the_released_decoders(schedule: Schedule, times: list[float]) -> None:
    assert schedule.times().tolist() == pytest.approx(times, abs=1e-6)


@pytest.mark.parametrize(("n_steps", "guidance"), [(0, 0.7), (-1, 0.7), (10, -0.1), (2, math.nan)])
def test_a_schedule_that_leads_nowhere_is_refused(n_steps: int, guidance: float) -> None:
    with pytest.raises(OptionError):
        Schedule(n_steps, "cosine", guidance)


def test_guidance_leads_away_from_the_row_without_a_voice() -> None:
    rows = torch.tensor([3.0, 1.0, 5.0, 7.0]).view(4, 1, 1)  # of two requests
    assert guide(rows, 0.5).flatten().tolist() == [4.0, 4.0]
    assert torch.equal(guide(rows, 0.0), rows)


def test_time_is_told_in_sines_then_cosines_of_a_thousandth() -> None:
    waves = time_waves(torch.tensor([0.0, 0.5]), 6)
    assert waves[0].tolist() == [0, 0, 0, 1, 1, 1]
    angles = [500.0, 5.0, 0.05]
    expected = [math.sin(angle) for angle in angles] + [math.cos(angle) for angle in angles]
    assert waves[1].tolist() == pytest.approx(expected, abs=1e-4)


@torch.inference_mode()
def test_a_unit_reads_only_what_stands_left() -> None:
    unit = ResnetBlock(4, 8, 16).double()
    randomize(unit, 1)
    x = torch.randn(1, 12, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    shift = torch.zeros(8, dtype=torch.float64)
    part = unit(x[:, :7], shift)
    assert torch.allclose(unit(x, shift)[:, :7], part, atol=1e-12)
    assert not torch.allclose(unit(x, shift + 1)[:, :7], part)
