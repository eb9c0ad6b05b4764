"""Identities of the vocoder: pieces are the whole, and the whole is what the formulas say."""

from __future__ import annotations

import itertools

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from nightingale.backends.torch.vocoder.model import F0_CONTEXT, FILTER_CONTEXT
from nightingale.backends.torch.vocoder.source import SourceState, draw_noise
from tests.backends.torch.vocoder.small import small_mel, small_vocoder

N = 480


def slow_f0(w: dict[str, Tensor], mel: Tensor) -> Tensor:
    """Straight from the description, one line an operation."""
    x = mel[None]
    for layer in (0, 2, 4, 6, 8):
        name = f"f0_predictor.condnet.{layer}"
        x = F.elu(F.conv1d(x, w[f"{name}.weight"], w[f"{name}.bias"], padding=1))
    scores = w["f0_predictor.classifier.weight"][0] @ x[0] + w["f0_predictor.classifier.bias"]
    return scores.abs()


def slow_filter(w: dict[str, Tensor], mel: Tensor, source: Tensor) -> Tensor:
    window = torch.hann_window(16, dtype=mel.dtype)
    spectrum = torch.stft(source, 16, 4, 16, window, return_complex=True)
    excitation = torch.cat((spectrum.real, spectrum.imag))[None]

    def conv(name: str, x: Tensor, stride: int = 1, padding: int = 0, dilation: int = 1) -> Tensor:
        return F.conv1d(x, w[f"{name}.weight"], w[f"{name}.bias"], stride, padding, dilation)

    def snake(name: str, x: Tensor) -> Tensor:
        a = w[f"{name}.alpha"].view(1, -1, 1)
        return x + torch.sin(a * x) ** 2 / (a + 1e-9)

    def block(name: str, x: Tensor, reach: int) -> Tensor:
        for i, d in enumerate((1, 3, 5)):
            y = conv(f"{name}.convs1.{i}", snake(f"{name}.activations1.{i}", x), 1, reach * d, d)
            x = x + conv(f"{name}.convs2.{i}", snake(f"{name}.activations2.{i}", y), 1, reach)
        return x

    x = conv("conv_pre", mel[None], padding=3)
    stages = ((8, 4, 15, 7, 3), (5, 3, 3, 1, 3), (3, 2, 1, 0, 5))
    for i, (up, cut, down, pad, reach) in enumerate(stages):
        x = F.leaky_relu(x, 0.1)
        x = F.conv_transpose1d(x, w[f"ups.{i}.weight"], w[f"ups.{i}.bias"], up, cut)
        if i == 2:
            x = torch.cat((x[..., 1:2], x), dim=-1)
        x = x + block(
            f"source_resblocks.{i}", conv(f"source_downs.{i}", excitation, down, pad), reach
        )
        three = [block(f"resblocks.{3 * i + j}", x, reach) for j, reach in enumerate((1, 3, 5))]
        x = (three[0] + three[1] + three[2]) / 3
    x = conv("conv_post", F.leaky_relu(x, 0.01), padding=3)
    magnitude = x[0, :9].exp().clamp(max=100)
    made = torch.polar(magnitude, x[0, 9:].sin())
    return torch.istft(made, 16, 4, 16, window).clamp(-0.99, 0.99)


def drawn_source(n_frames: int, seed: int = 0) -> Tensor:
    """A source that is not a mere hum, in float64."""
    generator = torch.Generator().manual_seed(seed)
    return 0.2 * torch.randn(n_frames * N, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("n_frames", [1, 3, 20])
def test_the_filter_is_what_the_formulas_say(n_frames: int) -> None:
    model = small_vocoder(2).double()
    mel, source = small_mel(2, n_frames).double(), drawn_source(n_frames)
    wanted = slow_filter(model.state_dict(), mel, source)
    assert torch.allclose(model.filter(mel, source), wanted, atol=1e-11, rtol=0)
    with torch.no_grad():  # loud enough for the magnitudes to be cut off, and quiet again after
        model.get_parameter("conv_post.bias")[3:6] += 6.0
        model.get_parameter("conv_post.bias")[:3] -= 3.0
    wanted = slow_filter(model.state_dict(), mel, source)
    assert torch.allclose(model.filter(mel, source), wanted, atol=1e-11, rtol=0)


def test_the_pitch_is_what_the_formulas_say() -> None:
    model, mel = small_vocoder().double(), small_mel(0, 30).double()
    f0 = model.f0(mel)
    assert torch.allclose(f0, slow_f0(model.state_dict(), mel), atol=1e-9, rtol=0)
    assert f0.min() < 10  # the weights are not boring
    assert f0.max() > 300


CUTS = [[1], [7, 8], [13, 14, 40], list(range(1, 60))]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("cuts", CUTS)
def test_a_source_in_pieces_is_the_whole_source_to_the_bit(
    cuts: list[int], dtype: torch.dtype
) -> None:
    model = small_vocoder().to(dtype)
    f0 = model.f0(small_mel().to(dtype))
    begin = SourceState.start(4, 9)
    whole, end = model.source(f0, begin, draw_noise(4, 0, 60, 9, N))
    state, pieces = begin, []
    for first, last in itertools.pairwise([0, *cuts, 60]):
        assert state.frame == first
        noise = draw_noise(4, state.frame, last - first, 9, N)
        piece, state = model.source(f0[first:last], state, noise)
        pieces.append(piece)
    assert torch.equal(torch.cat(pieces), whole)
    assert torch.equal(state.phase, end.phase)
    assert state.frame == end.frame == 60


@pytest.mark.slow
@pytest.mark.parametrize(("first", "last"), [(0, 5), (3, 9), (20, 21), (50, 60), (0, 60)])
@pytest.mark.parametrize(
    ("dtype", "context", "bound"),
    [
        (torch.float64, FILTER_CONTEXT, 1e-12),
        (torch.float64, 14, 1e-12),
        (torch.float32, FILTER_CONTEXT, 1e-6),
        (torch.float32, 14, 1e-6),
    ],
)
def test_a_slice_with_context_sounds_as_it_does_in_the_whole(
    dtype: torch.dtype, context: int, bound: float, first: int, last: int
) -> None:
    """At the true ends there is no context, and nothing else to do."""
    model = small_vocoder().to(dtype)
    mel, source = small_mel().to(dtype), drawn_source(60).to(dtype)
    whole = model.filter(mel, source)
    a, b = max(0, first - context), min(60, last + context)
    part = model.filter(mel[:, a:b], source[a * N : b * N])
    got = part[(first - a) * N : (last - a) * N]
    assert (got - whole[first * N : last * N]).abs().max() < bound


@pytest.mark.parametrize(("first", "last"), [(0, 5), (20, 21), (50, 60)])
def test_the_pitch_of_a_slice_with_context_is_that_of_the_whole(first: int, last: int) -> None:
    model, mel = small_vocoder().double(), small_mel().double()
    a, b = max(0, first - F0_CONTEXT), min(60, last + F0_CONTEXT)
    got = model.f0(mel[:, a:b])[first - a : last - a]
    assert (got - model.f0(mel)[first:last]).abs().max() < 1e-10


def test_a_frame_reaches_as_far_as_its_context_says_and_no_further() -> None:
    """Given the source: mel 14 frames, source 15 frames, pitch 5 frames, both ways."""
    model = small_vocoder().double()
    mel, source = small_mel().double(), drawn_source(60)
    other_mel, other_source = mel.clone(), source.clone()
    other_mel[:, 30] += 1
    other_source[30 * N : 31 * N] += 0.1
    changes = {
        "mel": (model.filter(other_mel, source) - model.filter(mel, source)).view(60, N),
        "source": (model.filter(mel, other_source) - model.filter(mel, source)).view(60, N),
        "pitch": (model.f0(other_mel) - model.f0(mel)).view(60, 1),
    }
    for name, limit in (("mel", 14), ("source", FILTER_CONTEXT), ("pitch", F0_CONTEXT)):
        touched = changes[name].abs().amax(1).nonzero().flatten() - 30
        assert limit - 2 <= -int(touched[0]) <= limit, name
        assert limit - 2 <= int(touched[-1]) <= limit, name


def test_the_same_request_gives_the_same_bytes_on_one_thread_or_two() -> None:
    model, mel = small_vocoder(), small_mel()
    once = model.vocode(mel, seed=5)
    assert torch.equal(model.vocode(mel, seed=5), once)
    torch.set_num_threads(2)
    try:
        assert torch.equal(model.vocode(mel, seed=5), once)
    finally:
        torch.set_num_threads(1)
