"""From noise to mel: Euler steps along the estimator's velocity. Knows nothing of tokens."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from nightingale.backends.torch.flow.estimator import Estimator
from nightingale.backends.torch.flow.window import LayerCaches, StepCaches, Window
from nightingale.errors import OptionError
from nightingale.nn.device import HOST

Curve = Literal["cosine", "linear"]


@dataclass(frozen=True, slots=True)
class Schedule:
    """How many steps, how they are spread over flow time, and how hard the voice is pulled at."""

    n_steps: int
    curve: Curve
    guidance: float  # 0 runs one row instead of two

    def __post_init__(self) -> None:
        if self.n_steps < 1:
            raise OptionError(f"a schedule of {self.n_steps} steps goes nowhere: take 1 or more")
        if not self.guidance >= 0:  # NaN fails this too
            raise OptionError(f"guidance is {self.guidance}, but must be 0 (off) or more")

    def times(self) -> Tensor:
        """(n_steps + 1,) from 0 to 1; the cosine begins with small steps."""
        even = torch.linspace(0, 1, self.n_steps + 1, dtype=torch.float32, device=HOST)
        return 1 - torch.cos(even * 0.5 * math.pi) if self.curve == "cosine" else even


STANDARD = Schedule(10, "cosine", 0.7)
MEANFLOW = Schedule(2, "linear", 0.0)


@torch.inference_mode()
def solve(
    estimator: Estimator,
    mu: Tensor,
    speaker: Tensor,
    cond: Tensor,
    noise: Tensor,
    schedule: Schedule,
) -> Iterator[Tensor]:
    """Yields x after every step, (M, 80); the last one is the mel. Noise is (M, 80), as mu."""
    times = schedule.times()
    shifts = estimator.shifts(times[:-1], times[1:])
    context = estimator.context(mu, speaker, cond, guided=schedule.guidance > 0)
    x = noise.to(mu)
    for shift, size in zip(shifts, times.diff().tolist(), strict=True):
        velocity = estimator(x, context, shift)
        x = x + size * guide(velocity, schedule.guidance)
        yield x


@torch.inference_mode()
def solve_chunk(
    estimator: Estimator,
    mu: Tensor,
    speaker: Tensor,
    cond: Tensor,
    noise: Tensor,
    schedule: Schedule,
    before: Sequence[StepCaches],
) -> tuple[Tensor, StepCaches]:
    """As `solve`, for frames behind others that are cached; the mel, and what they leave."""
    times = schedule.times()
    shifts = estimator.shifts(times[:-1], times[1:])
    left = StepCaches()
    window = Window([steps.known for steps in before], left.known)
    context = estimator.context(mu, speaker, cond, guided=schedule.guidance > 0, window=window)
    x = noise.to(mu)
    for step, size in enumerate(times.diff().tolist()):
        left.steps.append(LayerCaches())
        window = Window([steps.steps[step] for steps in before], left.steps[-1])
        velocity = estimator(x, context, shifts[step], window)
        x = x + size * guide(velocity, schedule.guidance)
    return x, left


def guide(velocity: Tensor, guidance: float) -> Tensor:
    """Rows with and without voice and tokens, (2, M, 80), or one row as it is -> (M, 80)"""
    if guidance == 0:
        return velocity[0]
    return (1 + guidance) * velocity[0] - guidance * velocity[1]
