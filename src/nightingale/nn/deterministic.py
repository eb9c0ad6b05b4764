"""Products whose last bits do not depend on how many threads computed them.

The libraries split long sums among threads, and the rounding then tells how many there were. What
is short they leave whole, so what is long is cut here, always at the same places. Other devices
than the host have no threads of ours: there, each is one product.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nightingale.nn.device import HOST

LINEAR_REACH = 512  # inputs of a sum that stays whole, for MANY positions and more
MANY = 16
FEW = 2, 3  # positions in a step of T3: any sum stays whole; for 1, and up to MANY, it depends
CONV_REACH = 768  # products in one sum of a convolution
MAX_PADDING = (
    3  # with more, and without AVX-512, the library takes a slower way that counts threads
)
BLOCK = 16  # channels that the libraries like to take at once


@contextmanager
def one_thread() -> Iterator[None]:
    """For what is not built of these products, and seldom computed."""
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(n_threads)


class Linear(nn.Linear):
    """`nn.Linear`, the same on one thread and on many."""

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`F.linear` of (..., D) by (D', D), the same on one thread and on many."""
    if x.device != HOST:
        return F.linear(x, weight, bias)
    flat = x.reshape(-1, weight.shape[1])
    n_positions = len(flat)
    if n_positions <= max(FEW):
        out = F.linear(_at_least(min(FEW), flat), weight, bias)
    else:
        first, *rest = _pieces(_at_least(MANY, flat), weight, LINEAR_REACH)
        out = F.linear(*first, bias)
        for piece, weights in rest:
            out += F.linear(piece, weights)
    return out[:n_positions].view(*x.shape[:-1], -1)


@functools.cache
@one_thread()
def rows_are_independent() -> bool:
    """Whether the library sums a row of a product alike among any number of rows above `FEW`.

    It does where it was tried; another one, or another processor, is not taken on trust. On one
    thread, which these products do not depend on: teams that wait for each other beside a busy
    process took seconds.
    """
    made, least = torch.Generator().manual_seed(0), max(FEW) + 1
    for n_in, n_out in ((256, 1024), (512, 512), (80, 256)):
        weight, x = (torch.randn(n, n_in, generator=made) for n in (n_out, 32 * least))
        alone = torch.cat([linear(rows, weight) for rows in torch.split(x, least)])
        for n_rows in (2 * least, 5 * least, 8 * least, len(x)):
            together = torch.cat([linear(rows, weight) for rows in torch.split(x, n_rows)])
            if not torch.equal(alone, together):
                return False
    return True


class Conv(nn.Conv1d):
    """`nn.Conv1d` with a fixed padding, the same on one thread and on many."""

    def forward(self, x: Tensor) -> Tensor:
        padding, dilation, stride = self.padding[0], self.dilation[0], self.stride[0]
        assert isinstance(padding, int)
        if stride == 1:
            return convolve(x, self.weight, self.bias, padding=padding, dilation=dilation)
        assert dilation == 1
        return convolve_strided(x, self.weight, self.bias, stride=stride, padding=padding)


def convolve(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, *, padding: int = 0, dilation: int = 1
) -> Tensor:
    """`F.conv1d` of (B, D, T) by (D', D, n), the same on one thread and on many."""
    if x.device != HOST:
        return F.conv1d(x, weight, bias, padding=padding, dilation=dilation)
    kernel = weight.shape[-1]
    if kernel == 1:  # the library has a way of its own for these, and it depends on everything
        return linear(x.mT, weight[..., 0], bias).mT
    if padding > MAX_PADDING:
        x, padding = F.pad(x, (padding, padding)), 0
    n_channels = CONV_REACH // kernel // BLOCK * BLOCK
    first, *rest = _pieces(x, weight, n_channels)
    out = F.conv1d(*first, bias, padding=padding, dilation=dilation)
    for piece, weights in rest:
        out += F.conv1d(piece, weights, padding=padding, dilation=dilation)
    return out


def convolve_strided(
    x: Tensor, weight: Tensor, bias: Tensor | None = None, *, stride: int, padding: int = 0
) -> Tensor:
    """`F.conv1d` of (B, D, T) by (D', D, n) with a stride, the same on one thread and on many.

    A product of the unfolded frames: with a long stride, without AVX-512, the library's own way
    splits the sum among threads.
    """
    if x.device != HOST:
        return F.conv1d(x, weight, bias, stride, padding)
    frames = F.pad(x, (padding, padding)).unfold(2, weight.shape[-1], stride)  # (B, D, T', n)
    return linear(frames.transpose(1, 2).flatten(2), weight.flatten(1), bias).mT


def _pieces(x: Tensor, weight: Tensor, reach: int) -> list[tuple[Tensor, Tensor]]:
    return list(zip(torch.split(x, reach, 1), torch.split(weight, reach, 1), strict=True))


def _at_least(n_positions: int, x: Tensor) -> Tensor:
    return F.pad(x, (0, 0, 0, n_positions - len(x))) if len(x) < n_positions else x
