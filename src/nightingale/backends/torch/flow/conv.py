"""Convolution over time that sees only the past. Time comes before channels, in and out."""

from __future__ import annotations

import torch.nn.functional as F
from torch import Tensor, nn

from nightingale.backends.torch.flow.window import Window
from nightingale.nn.deterministic import convolve


class CausalConv(nn.Conv1d):
    """(B, T, D) -> (B, T, D'): a position reads itself and what stands left of it."""

    def forward(self, x: Tensor, window: Window | None = None) -> Tensor:
        return convolve_past(x, self.weight, self.bias, window)


def convolve_past(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, window: Window | None = None
) -> Tensor:
    """(B, T, D) by (D', D, n) -> (B, T, D'); before the first frame of a window, what it knows."""
    n = weight.shape[-1] - 1
    if window is None:
        padded = F.pad(x.transpose(1, 2), (n, 0))
    else:
        padded = window.past(x, n).transpose(1, 2).contiguous()
    return convolve(padded, weight, bias).transpose(1, 2)
