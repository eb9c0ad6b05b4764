"""Products in 8 bits: exact sums, the same bits on any number of threads and beside any frames."""

from __future__ import annotations

import ctypes

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nightingale.nn import fused, native
from nightingale.nn.convolution import Convolution, Snake
from tests.emulation import library as emulation

KINDS = ("int8_vnni", "int8_avx2")
SHAPES = [  # inputs, outputs, taps, dilation, frames
    (32, 32, 1, 1, 1), (256, 96, 1, 1, 50), (64, 96, 7, 3, 100), (80, 18, 11, 5, 33),
]  # fmt: skip


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def library_of(kind: str) -> ctypes.CDLL:
    """As compiled for this processor where it has the instructions, else with emulated ones."""
    if (found := native.int8()) is not None and found._name.endswith(f"{kind}.so"):
        return found
    if kind != "int8_vnni" or emulation.compiler() is None:
        pytest.skip(f"{kind} does not run here")
    return emulation.emulated(kind)


def rounded(x: Tensor) -> tuple[Tensor, Tensor]:
    """Rows as whole numbers, and their scales"""
    most = x.abs().amax(-1, keepdim=True)
    inverse = torch.full_like(most, 127).div(most)
    return (x.double() * inverse.double()).round(), most / 127


def reference(x: Tensor, weight: Tensor, bias: Tensor, dilation: int) -> Tensor:
    """(T + reach, D) in fp32 -> (T, D'): taps of exact sums, in float64"""
    codes, scales = rounded(x)
    n_taps, n = weight.shape[2], len(x) - (weight.shape[2] - 1) * dilation
    weights, factors = rounded(weight.flatten(1))
    taps = weights.view_as(weight)
    total = torch.zeros(n, len(weight), dtype=torch.float64)
    for tap in range(n_taps):
        here = slice(tap * dilation, tap * dilation + n)
        total += codes[here] @ taps[:, :, tap].T * scales[here].double()
    return total * factors.T.double() + bias.double()


def made_by(library: ctypes.CDLL, shape: tuple[int, ...]) -> tuple[Convolution, Tensor, Tensor]:
    """A convolution, what it reads, and what it should make of it"""
    n_in, n_out, n_taps, dilation, n = shape
    weight, bias = drawn(n_out, n_in, n_taps, seed=1), drawn(n_out, seed=2)
    conv = Convolution(weight, bias, dilation, library=library)
    x = drawn(n + conv.reach, n_in, seed=3).bfloat16()
    wanted = reference(x.float(), weight, bias, dilation)
    return conv, F.pad(x, (0, conv.n_in - n_in)), wanted


def error(made: Tensor, wanted: Tensor) -> float:
    return float((made - wanted).abs().max() / wanted.abs().max())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", SHAPES)
def test_int8_convolution_sums_exactly(kind: str, shape: tuple[int, ...]) -> None:
    conv, x, wanted = made_by(library_of(kind), shape)
    assert error(conv(x)[:, : shape[1]], wanted) < 1e-6
    assert not conv(x)[:, shape[1] :].any()


@pytest.mark.parametrize("kind", KINDS)
def test_a_planted_wrong_code_of_an_int8_weight_is_found(kind: str) -> None:
    conv, x, wanted = made_by(library_of(kind), SHAPES[1])
    conv.weights[100] += 1
    assert error(conv(x)[:, : SHAPES[1][1]], wanted) > 1e-4


@pytest.mark.parametrize("kind", KINDS)
def test_int8_convolution_finishes_with_residual_gelu_and_norm(kind: str) -> None:
    library, norm = library_of(kind), nn.LayerNorm(64).requires_grad_(False)
    norm.weight.copy_(drawn(64, seed=4))
    weight, bias = drawn(64, 64, 1, seed=5), drawn(64, seed=6)
    conv = Convolution(weight, bias, library=library)
    stream, residual = drawn(2, 21, 64, seed=7), drawn(2, 21, 64, seed=8)
    made = conv(stream, residual, norm=norm, gelu=True)
    normed = norm(stream)
    wanted = reference(normed.flatten(0, 1), weight, bias, 1).view_as(stream) + residual
    off = (made - F.gelu(wanted)).abs() / wanted.abs().max()
    assert off.quantile(0.95) < 1e-4  # a code that rounds the other way is off by 1 / 127
    assert off.max() < 0.02


@pytest.mark.parametrize("kind", KINDS)
def test_int8_bits_depend_on_neither_threads_nor_other_frames(kind: str) -> None:
    conv, x, _ = made_by(library_of(kind), SHAPES[2])
    keys, before = drawn(1, 40, 64).bfloat16(), torch.get_num_threads()
    made = []
    try:
        for n_threads in (1, 2, 3):
            torch.set_num_threads(n_threads)
            heard = fused.attend(keys, [keys], [keys], 1, library_of(kind))
            made.append((conv(x), conv(x[None].repeat(2, 1, 1))[1], heard))
    finally:
        torch.set_num_threads(before)
    for others in made[1:]:
        assert all(torch.equal(a, b) for a, b in zip(made[0], others, strict=True))
    assert torch.equal(made[0][0], made[0][1])
    for n in (1, 3, 7, 50):
        assert torch.equal(conv(x[: n + conv.reach].contiguous()), made[0][0][:n])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n_queries", "n_keys"), [(1, 1), (5, 16), (33, 17), (16, 250)])
@pytest.mark.parametrize("d_head", fused.D_HEADS)
def test_int8_attention(kind: str, n_queries: int, n_keys: int, d_head: int) -> None:
    queries = 3 * drawn(2, n_queries, 2 * d_head).bfloat16()
    keys, values = (drawn(2, n_keys, 2 * d_head, seed=s).bfloat16() for s in (1, 2))
    made = fused.attend(queries, [keys], [values], 2, library_of(kind))
    q, k, v = (x.double().view(2, -1, 2, d_head).transpose(1, 2) for x in (queries, keys, values))
    wanted = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
    assert error(made, wanted) < 2**-8  # the result is bfloat16
    parts = [part for part in (n_keys // 3, n_keys - n_keys // 3) if part]
    k_parts, v_parts = (
        [part.contiguous() for part in torch.split(x, parts, 1)] for x in (keys, values)
    )
    assert torch.equal(fused.attend(queries, k_parts, v_parts, 2, library_of(kind)), made)


@pytest.mark.parametrize("kind", KINDS)
def test_int8_norms_and_snake(kind: str) -> None:
    library, norm = library_of(kind), nn.LayerNorm(64).requires_grad_(False)
    h, shift = 3 * drawn(20, 64).bfloat16(), drawn(64, seed=1)
    wanted = F.mish(norm(h.float()))
    assert error(fused.norm_mish(h, norm, shift, library), wanted + shift) < 2**-8
    assert error(fused.norm_mish_residual(h, norm, h, library), wanted + h.float()) < 1e-5
    stream = drawn(20, 64, seed=2)
    grown = stream.clone()
    assert error(fused.add_norm(grown, h, norm, library), norm(stream + h.float())) < 2**-8
    assert torch.equal(grown, stream + h.float())
    snake, x = Snake(drawn(64).abs() + 0.1, 1e-9, library=library), 3 * drawn(30, 64, seed=3)
    wanted = x + (x * snake.pace).sin() ** 2 * snake.inverse
    assert error(snake(x, 4)[2:-2], wanted) < 2**-8
