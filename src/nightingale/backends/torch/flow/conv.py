"""Convolution over time that sees only the past. Time comes before channels, in and out."""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nightingale.backends.torch.flow.window import AnyWindow, JointWindow
from nightingale.nn.deterministic import convolve
from nightingale.nn.device import HOST


class CausalConv(nn.Conv1d):
    """(B, T, D) -> (B, T, D'): a position reads itself and what stands left of it."""

    def forward(self, x: Tensor, window: AnyWindow | None = None) -> Tensor:
        return convolve_past(x, self.weight, self.bias, window)


def convolve_past(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, window: AnyWindow | None = None
) -> Tensor:
    """(B, T, D) by (D', D, n) -> (B, T, D'); before the first frame of a window, what it knows."""
    n = weight.shape[-1] - 1
    if window is None:
        padded = F.pad(x.transpose(1, 2), (n, 0))
    else:
        padded = window.past(x, n).transpose(1, 2).contiguous()
    return each(lambda rows: convolve(rows, weight, bias), padded, window).transpose(1, 2)


def each(function: Callable[[Tensor], Tensor], x: Tensor, window: AnyWindow | None) -> Tensor:
    """A function of which the last bits depend, on the host, on the size of the whole: there it is
    computed for one request after the other.

    The libraries convolve a single row in another way than several, and compute the last elements
    of a tensor, or of a thread's part of it, by another exponential than the others.
    """
    if not isinstance(window, JointWindow) or x.device != HOST:
        return function(x)
    return torch.cat([function(rows) for rows in x.chunk(window.n_requests)])
