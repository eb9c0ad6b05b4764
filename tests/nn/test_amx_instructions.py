"""Emulated AMX, BF16 and VNNI instructions do what Intel's manual says; real ones do the same."""

from __future__ import annotations

import ctypes
import math

import pytest
import torch
from torch import Tensor

from nightingale.nn import fused, native
from tests.emulation import library as emulation

REAL = ("-O2", "-march=sapphirerapids", "-fPIC", "-shared")
NEEDS_AMX = pytest.mark.skipif(not fused.has_amx(), reason="this processor has no AMX")

pytestmark = pytest.mark.usefixtures("c_compiler")


@pytest.fixture(params=["vectors", "portable"])
def emulated(request: pytest.FixtureRequest) -> ctypes.CDLL:
    """With the processor's AVX-512, where it has it, and without."""
    return emulation.emulated("instructions", portable=request.param == "portable")


def run(library: ctypes.CDLL, name: str, x: Tensor, y: Tensor, sums: Tensor) -> Tensor:
    made = sums.clone()
    getattr(library, name)(*(ctypes.c_void_p(t.data_ptr()) for t in (x, y, made)))
    return made


def to_bf16(library: ctypes.CDLL, x: Tensor) -> Tensor:
    made = torch.empty(16, dtype=torch.bfloat16)
    library.vcvtneps2bf16(ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(made.data_ptr()))
    return made


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def any_bytes(*shape: int, dtype: torch.dtype, seed: int = 0) -> Tensor:
    drawn = torch.randint(0, 256, shape, generator=torch.Generator().manual_seed(seed))
    return drawn.to(torch.uint8).view(dtype)


def bf16(*bits: int) -> Tensor:
    return torch.tensor(bits, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)


def fp32(*bits: int) -> Tensor:
    return torch.tensor(bits, dtype=torch.int64).to(torch.int32).view(torch.float32)


def one_product(
    emulated: ctypes.CDLL, left: list[float], right: list[float], start: float
) -> float:
    """The first sum of TDPBF16PS: a row by a column, both up to 32 numbers long"""
    x, y = torch.zeros(16, 32).bfloat16(), torch.zeros(16, 16, 2).bfloat16()
    x[0, : len(left)] = torch.tensor(left).bfloat16()
    column = torch.zeros(32).bfloat16()
    column[: len(right)] = torch.tensor(right).bfloat16()
    y[:, 0] = column.view(16, 2)
    return float(run(emulated, "tdpbf16ps", x, y, torch.full((16, 16), float(start)))[0, 0])


def test_tdpbf16ps_is_a_matrix_product(emulated: ctypes.CDLL) -> None:
    x, y, sums = drawn(16, 32).bfloat16(), drawn(16, 16, 2, seed=1).bfloat16(), drawn(16, 16)
    matrix = y.permute(0, 2, 1).reshape(32, 16).double()
    exact = sums.double() + x.double() @ matrix
    assert (run(emulated, "tdpbf16ps", x, y, sums) - exact).abs().max() < 1e-5


def test_tdpbf16ps_sums_even_and_odd_products_apart_then_adds_them_to_the_destination(
    emulated: ctypes.CDLL,
) -> None:
    tiny = 2.0**-24  # half of what a sum of 1 can notice
    assert one_product(emulated, [1, tiny, 0, tiny], [1, 1, 1, 1], 0) == 1 + 2 * tiny
    assert one_product(emulated, [1, 0, tiny, 0, tiny], [1] * 5, 0) == 1
    assert one_product(emulated, [tiny, tiny], [1, 1], 1) == 1 + 2 * tiny


def test_tdpbf16ps_takes_denormals_for_zeros(emulated: ctypes.CDLL) -> None:
    denormal, half = 2.0**-130, 2.0**-70
    assert one_product(emulated, [denormal], [2.0**100], 0) == 0
    assert one_product(emulated, [half], [half], 0) == 0
    assert one_product(emulated, [0], [0], 2.0**-130) == 0
    assert one_product(emulated, [half, 2.0**-56], [half, half], 0) == 2.0**-126


def test_tdpbf16ps_hands_on_what_is_no_number(emulated: ctypes.CDLL) -> None:
    inf = float("inf")
    assert one_product(emulated, [inf, 1], [2, 1], 0) == inf
    assert math.isnan(one_product(emulated, [inf, 1], [0, 1], 0))
    assert one_product(emulated, [3e38], [3e38], 0) == inf


def test_vdpbf16ps_adds_the_odd_product_first(emulated: ctypes.CDLL) -> None:
    x = torch.tensor([2.0**-24, -1.0]).bfloat16().repeat(16)
    made = run(emulated, "vdpbf16ps", x, torch.ones(32).bfloat16(), torch.ones(16))
    assert torch.equal(made, torch.full((16,), 2.0**-24))


def test_vdpbf16ps_is_a_product_of_pairs(emulated: ctypes.CDLL) -> None:
    x, y, sums = drawn(16, 2).bfloat16(), drawn(16, 2, seed=1).bfloat16(), drawn(16, seed=2)
    exact = sums.double() + (x.double() * y.double()).sum(1)
    assert (run(emulated, "vdpbf16ps", x, y, sums) - exact).abs().max() < 1e-6


@pytest.mark.parametrize("starts", [0, 2**31 - 1000, -(2**31)])
def test_tdpbusd_is_a_product_of_unsigned_by_signed_bytes(
    emulated: ctypes.CDLL, starts: int
) -> None:
    x, y = any_bytes(16, 64, dtype=torch.uint8), any_bytes(16, 16, 4, dtype=torch.int8, seed=1)
    x[0], y[:, 0] = 255, -128
    sums = torch.full((16, 16), starts, dtype=torch.int32)
    exact = starts + x.long() @ y.permute(0, 2, 1).reshape(64, 16).long()
    made = run(emulated, "tdpbusd", x, y, sums)
    assert torch.equal(made, exact.to(torch.int32))  # which wraps as well


def test_vpdpbusd_is_a_product_of_four_bytes(emulated: ctypes.CDLL) -> None:
    x, y = any_bytes(16, 4, dtype=torch.uint8), any_bytes(16, 4, dtype=torch.int8, seed=1)
    x[0], y[0] = 255, -128
    sums = torch.arange(16, dtype=torch.int32)
    assert torch.equal(
        run(emulated, "vpdpbusd", x, y, sums), sums + (x.int() * y.int()).sum(1).int()
    )


def test_vcvtneps2bf16_rounds_to_nearest_even(emulated: ctypes.CDLL) -> None:
    x = drawn(16) * torch.exp2(torch.arange(-120, 120, 15).float())
    x[:4] = fp32(0x3F808000, 0x3F818000, 0x3F808001, 0x7F7FFFFF)  # ties, and beyond the largest
    assert torch.equal(to_bf16(emulated, x), x.bfloat16())
    assert to_bf16(emulated, x)[:2].tolist() == bf16(0x3F80, 0x3F82).tolist()


def test_vcvtneps2bf16_flushes_denormals_and_quiets_nans(emulated: ctypes.CDLL) -> None:
    x = torch.zeros(16)
    x[:7] = fp32(1, 0x80000001, 0x007FFFFF, 0x807FFFFF, 0x7F800001, 0xFFA12345, 0x00800000)
    made = to_bf16(emulated, x)[:7].view(torch.int16)
    wanted = bf16(0, 0x8000, 0, 0x8000, 0x7FC0, 0xFFE1, 0x0080).view(torch.int16)
    assert torch.equal(made, wanted)


def test_emulation_never_runs_in_place_of_the_instructions() -> None:
    """Even where somebody put it into the package's folder, it would be refused without AMX."""
    library = emulation.emulated("amx")
    assert bool(library.nightingale_runs_here()) == fused.has_amx()
    assert not [file for file in native.FOLDER.iterdir() if "emulat" in file.name]


@pytest.fixture(scope="module")
def real() -> ctypes.CDLL:
    file = emulation.build(REAL, emulation.ARGUMENTS["instructions"], native.FOLDER)
    return emulation.load("instructions", file)


@NEEDS_AMX
@pytest.mark.parametrize("name", ["tdpbusd", "vpdpbusd"])
def test_real_products_of_bytes_are_the_emulated_ones(real: ctypes.CDLL, name: str) -> None:
    shape = (16, 64) if name == "tdpbusd" else (16, 4)
    x, y = any_bytes(*shape, dtype=torch.uint8), any_bytes(*shape, dtype=torch.int8, seed=1)
    sums = torch.full((16, shape[1] // 4), 2**31 - 1000, dtype=torch.int32)
    made = run(emulation.emulated("instructions"), name, x, y, sums)
    assert torch.equal(run(real, name, x, y, sums), made)


@NEEDS_AMX
def test_real_conversions_are_the_emulated_ones(real: ctypes.CDLL) -> None:
    for seed in range(200):
        x = any_bytes(64, dtype=torch.uint8, seed=seed).view(torch.float32)
        near = to_bf16(emulation.emulated("instructions"), x).view(torch.int16)
        assert torch.equal(to_bf16(real, x).view(torch.int16), near)


@NEEDS_AMX
@pytest.mark.parametrize("name", ["tdpbf16ps", "vdpbf16ps"])
def test_real_products_of_bfloat16_are_the_emulated_ones_but_for_the_order_of_sums(
    real: ctypes.CDLL, name: str
) -> None:
    """Intel's manual and its Intrinsics Guide differ in the order of TDPBF16PS: so, a bound."""
    shape = (16, 32) if name == "tdpbf16ps" else (16, 2)
    x, y = drawn(*shape).bfloat16(), drawn(*shape, seed=1).bfloat16()
    sums = drawn(16, shape[1] // 2, seed=2)
    made = run(emulation.emulated("instructions"), name, x, y, sums)
    assert (run(real, name, x, y, sums) - made).abs().max() < 1e-5
