"""Products that come out the same, to the bit, on one thread and on two."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from nightingale.nn.deterministic import Linear, convolve, convolve_strided, linear


def on_one_and_two_threads(compute: Callable[[], Tensor]) -> tuple[Tensor, Tensor]:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = compute()
        torch.set_num_threads(2)
        return one, compute()
    finally:
        torch.set_num_threads(before)


@pytest.mark.parametrize(
    "shape", [(1024, 256), (2048, 512), (1024, 8194), (513, 80), (80, 256), (320, 128)]
)
def test_linear_has_the_same_bits_on_one_and_two_threads(shape: tuple[int, int]) -> None:
    n_inputs, n_outputs = shape
    torch.manual_seed(0)
    most, weight = torch.randn(1, 250, n_inputs), torch.randn(n_outputs, n_inputs)
    bias = torch.randn(n_outputs)
    exact = F.linear(most.double(), weight.double(), bias.double())
    for n_positions in (1, 2, 3, 4, 8, 11, 15, 16, 37, 100, 250):
        x = most[:, :n_positions].contiguous()
        one, two = on_one_and_two_threads(partial(linear, x, weight, bias))
        assert torch.equal(one, two), n_positions
        assert (one - exact[:, :n_positions]).abs().max() < 2e-3, n_positions


@pytest.mark.slow
@pytest.mark.parametrize("n_inputs", [80, 256, 320, 512, 700])
@pytest.mark.parametrize("length", [10, 45, 197, 1600])
@pytest.mark.parametrize("kernel", [1, 3, 4, 5, 7, 11])
def test_convolution_is_the_same_to_the_bit(n_inputs: int, length: int, kernel: int) -> None:
    torch.manual_seed(0)
    x, weight = torch.randn(1, n_inputs, length), torch.randn(64, n_inputs, kernel)
    bias = torch.randn(64)
    one, two = on_one_and_two_threads(lambda: convolve(x, weight, bias, padding=kernel // 2))
    assert torch.equal(one, two)
    exact = F.conv1d(x.double(), weight.double(), bias.double(), padding=kernel // 2)
    assert (one - exact).abs().max() < 2e-3


@pytest.mark.parametrize(("kernel", "dilation"), [(3, 5), (7, 3), (11, 1), (11, 5)])
def test_wide_convolution_has_the_same_bits_on_one_and_two_threads(
    kernel: int, dilation: int
) -> None:
    torch.manual_seed(0)
    most, weight, bias = torch.randn(1, 16, 7201), torch.randn(16, 16, kernel), torch.randn(16)
    padding = kernel // 2 * dilation
    for length in (121, 1201, 7201):
        x = most[..., :length]
        one, two = on_one_and_two_threads(
            partial(convolve, x, weight, bias, padding=padding, dilation=dilation)
        )
        assert torch.equal(one, two), length
        exact = F.conv1d(x.double(), weight.double(), bias.double(), 1, padding, dilation)
        assert (one - exact).abs().max() < 2e-3, length


@pytest.mark.parametrize("stride", [3, 15])
def test_strided_convolution_has_the_same_bits_on_one_and_two_threads(stride: int) -> None:
    torch.manual_seed(0)
    most, weight, bias = torch.randn(1, 18, 7201), torch.randn(64, 18, 2 * stride), torch.randn(64)
    for length in (31, 500, 1201, 7201):
        x, padding = most[..., :length], stride // 2
        compute = partial(convolve_strided, x, weight, bias, stride=stride, padding=padding)
        one, two = on_one_and_two_threads(compute)
        assert torch.equal(one, two), length
        exact = F.conv1d(x.double(), weight.double(), bias.double(), stride, padding)
        assert (one - exact).abs().max() < 2e-3, length


def test_linear_keeps_the_shape_of_what_it_reads() -> None:
    layer = Linear(600, 7)
    for shape in ((600,), (1, 600), (2, 600), (1, 1, 600), (2, 3, 600), (2, 20, 600)):
        x = torch.randn(shape)
        out = layer(x)
        assert out.shape == (*shape[:-1], 7)
        assert torch.allclose(out, F.linear(x, layer.weight, layer.bias), atol=1e-4)
