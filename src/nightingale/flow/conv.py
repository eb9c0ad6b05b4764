"""Convolution over time that sees only the past. Time comes before channels, in and out."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from nightingale.nn.steady import convolve


class CausalConv(nn.Conv1d):
    """(B, T, D) -> (B, T, D'): a position reads itself and what stands left of it."""

    def forward(self, x: Tensor) -> Tensor:
        return convolve_past(x, self.weight, self.bias)


def convolve_past(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """(B, T, D) by (D', D, n) -> (B, T, D')"""
    padded = F.pad(x.transpose(1, 2), (weight.shape[-1] - 1, 0))
    return convolve(padded, weight, bias).transpose(1, 2)
