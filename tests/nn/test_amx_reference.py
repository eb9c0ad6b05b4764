"""AMX kernels compute what `amx_reference` defines, by whichever instructions they run.

A number that a kernel stores in bfloat16 has to be the rounding of the reference's, give or take a
slack that each check states, as a part of the numbers' size: that of sums in fp32, or of a curve.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from nightingale.nn import fused, native
from nightingale.nn.convolution import Convolution, Snake
from tests.emulation import library as emulation
from tests.nn import amx_reference as reference

SUMS = 3e-6  # fp32
WEIGHT = 2e-3  # of attention: one that rounds the other way is off by 0.4 %
MISH, GELU, SINE = 3e-4, 2e-5, 1e-6  # polynomials
SHAPES = [  # of attention: rows, queries, keys
    (1, 1, 1), (2, 5, 16), (1, 16, 31), (2, 33, 17), (1, 31, 64), (1, 32, 65), (2, 65, 250),
]  # fmt: skip
CONVOLUTIONS = [  # inputs, outputs, taps, dilation, frames
    (32, 32, 1, 1, 1), (32, 32, 3, 1, 40), (64, 96, 7, 3, 100), (80, 18, 11, 5, 33),
    (40, 64, 1, 1, 65),
]  # fmt: skip


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def random_norm(width: int) -> nn.LayerNorm:
    norm = nn.LayerNorm(width, 1e-5).requires_grad_(False)
    norm.weight.copy_(drawn(width, seed=8))
    norm.bias.copy_(drawn(width, seed=9))
    return norm


def agree(made: Tensor, exact: Tensor, slack: float) -> None:
    """The rounding of nearly the exact numbers, or those themselves where the result is fp32."""
    most = torch.full_like(exact, slack * float(exact.square().mean().sqrt()))
    if made.dtype == torch.bfloat16:
        exponents = exact.abs().clamp(min=2.0**-126).log2().floor()
        most += torch.exp2(exponents - 8)  # half a step from one bfloat16 to the next
    off = (made.double() - exact).abs()
    assert (off <= most).all(), f"off by {off.max():.3g}, {(off > most).double().mean():.2%} of all"


def check_attend() -> None:
    for d_head in fused.D_HEADS:
        for n_rows, n_queries, n_keys in SHAPES:
            queries = 3 * drawn(n_rows, n_queries, 2 * d_head).bfloat16()
            keys, values = (drawn(n_rows, n_keys, 2 * d_head, seed=s).bfloat16() for s in (1, 2))
            made = fused.attend(queries, [keys], [values], 2)
            agree(made, reference.attend(queries, keys, values, 2), WEIGHT)


def check_attend_far() -> None:
    """Two keys behind the first block outweigh all by more than fits: they are weighed again."""
    queries, keys, values = (drawn(1, 80, 64, seed=s).bfloat16() for s in range(3))
    queries = queries.abs()
    for size in (20, 2000):
        keys[:, 70], keys[:, 75] = size, 0.975 * size
        made = fused.attend(queries, [keys], [values], 1)
        agree(made, reference.attend(queries, keys, values, 1), WEIGHT)


def check_add_norm() -> None:
    norm, x, y = random_norm(48), 3 * drawn(2, 7, 48) + 5, drawn(2, 7, 48, seed=1).bfloat16()
    for added in (None, y):
        stream = x.clone()
        made = fused.add_norm(stream, added, norm)
        wanted, exact = reference.add_norm(x, added, norm)
        assert torch.equal(stream, wanted)
        agree(made, exact, SUMS)


def check_norm_mish() -> None:
    norm, h = random_norm(48), 4 * drawn(2, 7, 48).bfloat16()
    shift, residual = drawn(48), drawn(2, 7, 48, seed=1).bfloat16()
    agree(fused.norm_mish(h, norm), reference.norm_mish(h, norm), MISH)
    agree(fused.norm_mish(h, norm, shift), reference.norm_mish(h, norm, shift), MISH)
    made = fused.norm_mish_residual(h, norm, residual)
    assert made.dtype == torch.float32
    agree(made, reference.norm_mish(h, norm, residual=residual), MISH)


def check_convolve() -> None:
    for n_in, n_out, n_taps, dilation, n in CONVOLUTIONS:
        weight, bias = drawn(n_out, n_in, n_taps), drawn(n_out, seed=1)
        layer = Convolution(weight, bias, dilation)
        assert torch.equal(layer.weights.view(torch.bfloat16), reference.pack(weight).flatten())
        x = torch.zeros(2, n + layer.reach, layer.n_in).bfloat16()
        x[..., :n_in] = drawn(2, n + layer.reach, n_in, seed=2).bfloat16()
        residual = drawn(2, n, layer.n_out, seed=3)
        exact = reference.convolve(x[..., :n_in], weight, bias, dilation=dilation)
        for bf16 in (False, True):
            agree(layer(x, bf16=bf16)[..., :n_out], exact, SUMS)
        agree(layer(x, residual)[..., :n_out], exact + residual[..., :n_out], SUMS)
        assert not layer(x)[..., n_out:].any()


def check_gelu() -> None:
    weight, bias, residual = drawn(64, 32, 1), drawn(64, seed=1), drawn(1, 70, 64, seed=2)
    x = drawn(1, 70, 32, seed=3).bfloat16()
    exact = reference.convolve(x, weight, bias, residual=residual, gelu=True)
    for bf16 in (False, True):
        agree(Convolution(weight, bias)(x, residual, gelu=True, bf16=bf16), exact, GELU)


def check_norm_on_the_way_in() -> None:
    weight, bias, norm = drawn(64, 96, 1), drawn(64, seed=1), random_norm(96)
    stream = 5 * drawn(2, 130, 96, seed=2) + 3
    made = Convolution(weight, bias)(stream, norm=norm)
    exact = reference.convolve(stream, weight, bias, norm=norm)
    assert (made - exact).norm() < 2e-4 * exact.norm()  # few inputs round the other way


def check_snake() -> None:
    x, alpha = 20 * drawn(50, 32), 0.2 + drawn(32, seed=1).abs()
    agree(Snake(alpha, 1e-9)(x, 7), reference.snake(x, alpha, 1e-9, 3, 4), SINE)


def dirty(check: Callable[[], None]) -> Callable[[], None]:
    """With NaN wherever memory was not written: what a kernel forgets is not zero by accident."""

    def run() -> None:
        torch.use_deterministic_algorithms(True)  # fills new tensors
        try:
            assert torch.empty(3).isnan().all()
            check()
        finally:
            torch.use_deterministic_algorithms(False)

    return run


CHECKS: dict[str, Callable[[], None]] = {
    "attend": dirty(check_attend),
    "attend far": dirty(check_attend_far),
    "add_norm": dirty(check_add_norm),
    "norm_mish": dirty(check_norm_mish),
    "convolve": dirty(check_convolve),
    "gelu": dirty(check_gelu),
    "norm on the way in": dirty(check_norm_on_the_way_in),
    "snake": dirty(check_snake),
}


@pytest.mark.usefixtures("amx")
@pytest.mark.parametrize("name", CHECKS)
def test_amx_kernel_is_its_reference(name: str) -> None:
    CHECKS[name]()


@pytest.mark.usefixtures("c_compiler")
@pytest.mark.parametrize("name", CHECKS)
def test_amx_kernel_in_plain_c_is_its_reference(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a processor without any of these instructions."""
    monkeypatch.setattr(native, "amx", lambda: emulation.emulated("amx", portable=True))
    CHECKS[name]()


def everything() -> dict[str, Tensor]:
    """What every kernel makes of the same numbers."""
    x, norm = drawn(2, 70, 3 * 64).bfloat16(), random_norm(64)
    queries, keys, values = x.chunk(3, dim=-1)
    layer = Convolution(drawn(96, 64, 3), drawn(96, seed=1), 2)
    linear = Convolution(drawn(96, 64, 1), drawn(96, seed=1))
    h = x[..., :64].contiguous()
    return {
        "attend": fused.attend(queries, [keys], [values], 2),
        "add_norm": fused.add_norm(h.float(), h, norm),
        "norm_mish": fused.norm_mish(h, norm, drawn(64)),
        "norm_mish_residual": fused.norm_mish_residual(h, norm, h),
        "pack": layer.weights,
        "convolve": layer(h),
        "gelu": layer(h, gelu=True, bf16=True),
        "norm on the way in": linear(h.float(), norm=norm),
        "snake": Snake(drawn(64).abs() + 0.2, 1e-9)(h[0].float(), 5),
    }


def made_by(library: ctypes.CDLL, monkeypatch: pytest.MonkeyPatch) -> dict[str, Tensor]:
    with monkeypatch.context() as patch:
        patch.setattr(native, "amx", lambda: library)
        return everything()


@pytest.mark.usefixtures("c_compiler")
def test_emulated_vectors_are_the_real_ones_to_the_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    """But for mish, which divides by an approximation that only the processor knows."""
    near, far = (
        made_by(emulation.emulated("amx", portable=portable), monkeypatch)
        for portable in (False, True)
    )
    for name, made in near.items():
        if "mish" in name:
            assert (made - far[name]).norm() < 1e-3 * made.norm()
        else:
            assert torch.equal(made, far[name]), name


@pytest.mark.skipif(not fused.has_amx(), reason="this processor has no AMX")
@pytest.mark.usefixtures("c_compiler")
def test_amx_kernels_make_what_their_emulation_makes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few roundings differ: sums may come in another order, products and sums may be fused."""
    emulated = made_by(emulation.emulated("amx"), monkeypatch)
    for name, made in everything().items():
        near = emulated[name]
        if name in ("pack", "snake"):
            assert torch.equal(made, near), name
        elif made.dtype == torch.bfloat16:
            assert (made != near).double().mean() < 0.02, name
            assert (made - near).norm() < 1e-3 * near.norm(), name
        else:
            assert (made - near).norm() < 2e-4 * near.norm(), name
