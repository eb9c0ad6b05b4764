"""The estimator in bfloat16 on devices that multiply it: the same modules with narrower weights.

What is added up over the steps, x, stays in fp32; so does all that is not in the estimator.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from nightingale.backends.torch.flow.estimator import Context, Estimator
from nightingale.backends.torch.flow.window import AnyWindow


class Bf16Estimator(nn.Module):
    """Stands where `Estimator` stood, and is called as it is."""

    dtype = torch.bfloat16

    def __init__(self, slow: Estimator) -> None:
        super().__init__()
        self.config = slow.config
        self.estimator = slow.to(self.dtype)

    def shifts(self, start: Tensor, end: Tensor) -> Tensor:
        """As `Estimator.shifts`."""
        return self.estimator.shifts(start, end)

    def context(
        self,
        mu: Tensor,
        speaker: Tensor,
        cond: Tensor,
        *,
        guided: bool,
        window: AnyWindow | None = None,
    ) -> Context:
        """As `Estimator.context`."""
        known = (part.to(self.dtype) for part in (mu, speaker, cond))
        return self.estimator.context(*known, guided=guided, window=window)

    def forward(
        self, x: Tensor, context: Context, shifts: Tensor, window: AnyWindow | None = None
    ) -> Tensor:
        """As `Estimator`; velocities in the precision of x."""
        velocity: Tensor = self.estimator(x.to(self.dtype), context, shifts, window)
        return velocity.to(x.dtype)
