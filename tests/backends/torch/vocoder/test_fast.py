"""The vocoder in bfloat16 is the vocoder, nearly; its convolutions are convolutions."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from nightingale.backends.torch.vocoder.fast import FastVocoder
from nightingale.backends.torch.vocoder.model import Vocoder, VocoderConfig
from nightingale.nn.convolution import Convolution, Snake, between_zeros
from nightingale.nn.fused import amx_library
from tests.backends.torch.vocoder.small import SMALL, randomize, small_mel

pytestmark = pytest.mark.usefixtures("amx")


def drawn(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(
    ("n_in", "n_out", "kernel", "dilation", "n"),
    [
        (32, 32, 3, 1, 40),
        (64, 96, 7, 3, 100),
        (80, 18, 11, 5, 33),
        (64, 64, 1, 1, 5),
        (4, 4, 3, 1, 1),
    ],
)
def test_a_convolution_is_one(n_in: int, n_out: int, kernel: int, dilation: int, n: int) -> None:
    weight, bias, x = drawn(n_out, n_in, kernel), drawn(n_out, seed=1), drawn(n, n_in, seed=2)
    conv = Convolution(weight, bias, dilation)
    padded = between_zeros(x, conv.reach, conv.n_in)
    residual = drawn(n, conv.n_out, seed=3)
    made = conv(padded, residual)
    exact = F.conv1d(
        x.bfloat16().double().T[None], weight.bfloat16().double(), bias.double(),
        padding=conv.reach // 2, dilation=dilation,
    )[0].T  # fmt: skip
    assert (made[:, :n_out] - residual[:, :n_out] - exact).abs().max() < 1e-4
    assert torch.equal(made[:, n_out:], residual[:, n_out:])


def test_several_rows_are_convolved_each_on_its_own() -> None:
    conv = Convolution(drawn(64, 32, 3), drawn(64, seed=1))
    x = drawn(3, 52, 32, seed=2).bfloat16()
    together = conv(x)
    assert together.shape == (3, 50, 64)
    for row in range(3):
        assert torch.equal(together[row], conv(x[row]))
    assert torch.equal(conv(x, bf16=True), together.bfloat16())


def test_a_stream_is_normed_on_the_way_in() -> None:
    conv, norm = Convolution(drawn(64, 32, 1), drawn(64, seed=1)), nn.LayerNorm(32, 1e-5)
    norm.requires_grad_(False)
    norm.weight.copy_(drawn(32, seed=3))
    norm.bias.copy_(drawn(32, seed=4))
    stream = 5 * drawn(2, 130, 32, seed=2) + 3
    near, exact = conv(stream, norm=norm), conv(norm(stream).bfloat16())
    assert (near - exact).norm() < 1e-3 * exact.norm()  # few numbers round the other way


def test_what_is_made_may_be_added_to_a_stream() -> None:
    conv, x = Convolution(drawn(64, 32, 1), drawn(64, seed=1)), drawn(2, 70, 32).bfloat16()
    stream = drawn(2, 70, 64, seed=2)
    wanted = conv(x, residual=stream)
    conv.add_to(stream, x)
    assert torch.equal(stream, wanted)


def test_it_bends_as_gelu_does_far_out_too() -> None:
    conv = Convolution(torch.eye(32)[..., None], None)
    x = torch.cat((torch.linspace(-12, 12, 31 * 32), torch.tensor([-90.0, 90.0] * 16)))
    x = x.view(-1, 32).bfloat16()
    near, exact = conv(x, gelu=True).double(), F.gelu(x.double())
    assert ((near - exact).abs() <= 2e-4 * exact.abs() + 1e-4).all()


def test_a_snake_is_one_between_zeros() -> None:
    x, alpha = 20 * drawn(50, 32), 0.2 + drawn(20, seed=1).abs()
    x[:, 20:] = 0
    made = Snake(alpha, 1e-9)(x, 6)
    exact = x[:, :20] + (alpha * x[:, :20]).double().sin().square() / (alpha + 1e-9)
    assert made.shape == (50 + 6, 32)
    assert not made[:3].any()
    assert not made[53:].any()
    assert not made[:, 20:].any()
    assert ((made[3:53, :20] - exact).abs() <= 0.004 * exact.abs() + 1e-4).all()


@pytest.fixture(scope="module", params=[128, SMALL["n_channels"]])
def slow(request: pytest.FixtureRequest) -> Vocoder:
    """Stages of whole tiles, and some that are narrower."""
    model = Vocoder(VocoderConfig(**{**SMALL, "n_channels": request.param}))
    randomize(model, 0)
    return model.eval().requires_grad_(False)


@pytest.mark.slow
def test_it_sounds_nearly_the_same(slow: Vocoder) -> None:
    mel = small_mel(n_frames=16)
    exact, near = slow.vocode(mel, 1), FastVocoder(slow, amx_library()).vocode(mel, 1)
    noise_db = 10 * torch.log10((near - exact).square().sum() / exact.square().sum())
    assert -80 < noise_db < -35


@pytest.mark.slow
def test_a_slice_with_its_context_is_the_whole(slow: Vocoder) -> None:
    """What streaming rests on: see FILTER_CONTEXT."""
    fast, mel = FastVocoder(slow, amx_library()), small_mel(n_frames=42)
    source = 0.1 * drawn(42 * 480)
    whole = fast.filter(mel, source)
    part = fast.filter(mel[:, 4:38], source[4 * 480 : 38 * 480])
    kept = slice(19 * 480, 23 * 480)
    assert (part[15 * 480 : 19 * 480] - whole[kept]).abs().max() < 1e-6


def test_threads_leave_no_trace(slow: Vocoder) -> None:
    fast, mel, made, before = (
        FastVocoder(slow, amx_library()),
        small_mel(n_frames=8),
        [],
        torch.get_num_threads(),
    )
    try:
        for n_threads in (1, 2):
            torch.set_num_threads(n_threads)
            made.append(fast.vocode(mel, 1))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(made[0], made[1])
