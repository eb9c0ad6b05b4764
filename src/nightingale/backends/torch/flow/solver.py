"""From noise to mel: Euler steps along the estimator's velocity. Knows nothing of tokens."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from nightingale.backends.torch.flow.estimator import Estimator
from nightingale.backends.torch.flow.window import LayerCaches, StepCaches, Window, joint
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
    known = (part[None] for part in (mu, speaker, cond))
    context = estimator.context(*known, guided=schedule.guidance > 0)
    x = noise.to(mu)[None]
    for shift, size in zip(shifts, times.diff().tolist(), strict=True):
        velocity = estimator(x, context, shift)
        x = x + size * guide(velocity, schedule.guidance)
        yield x[0]


@torch.inference_mode()
def solve_chunk(
    estimator: Estimator,
    mu: Tensor,
    speaker: Tensor,
    cond: Tensor,
    noise: Tensor,
    schedule: Schedule,
    before: Sequence[Sequence[StepCaches]],
) -> tuple[Tensor, list[StepCaches]]:
    """As `solve`, for frames of R requests behind others of theirs that are cached.

    (R, M, 80), (R, 80), ... -> the mel of each, (R, M, 80), and what each leaves. There may be more
    rows than requests in `before`: they are computed for the shape alone.
    """
    times = schedule.times()
    shifts = estimator.shifts(times[:-1], times[1:])
    left, n = [StepCaches() for _ in before], len(mu)
    known = zip(before, left, strict=True)
    window = joint([Window([s.known for s in seen], own.known) for seen, own in known], n)
    context = estimator.context(mu, speaker, cond, guided=schedule.guidance > 0, window=window)
    x = noise.to(mu)
    for step, size in enumerate(times.diff().tolist()):
        for own in left:
            own.steps.append(LayerCaches())
        caches = zip(before, left, strict=True)
        windows = [Window([s.steps[step] for s in seen], own.steps[step]) for seen, own in caches]
        window = joint(windows, n)
        velocity = estimator(x, context, shifts[step], window)
        x = x + size * guide(velocity, schedule.guidance)
    return x, left


def guide(velocity: Tensor, guidance: float) -> Tensor:
    """Rows with and without voice and tokens, in turn, (2 R, M, 80), or one row of each request as
    it is -> (R, M, 80)"""
    if guidance == 0:
        return velocity
    return (1 + guidance) * velocity[0::2] - guidance * velocity[1::2]
