"""The vocoder as a whole: sizes, checks, loading, the opening of an utterance."""

from __future__ import annotations

import itertools
import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm

from nightingale.backends.torch.vocoder.model import (
    Vocoder,
    VocoderConfig,
    fade_in,
    fold_weight_norm,
)
from nightingale.backends.torch.vocoder.source import SourceState, draw_noise
from nightingale.errors import LayoutError, RequestError
from nightingale.weights.load import load_tensors, read_tensors
from tests.backends.torch.vocoder.small import SMALL, small_mel, small_vocoder

NORMED = re.compile(r"(conv_pre|conv_post|ups|f0_predictor\.condnet|convs[12])")


def released(model: Vocoder) -> dict[str, Tensor]:
    """The tensors of a model in the form of the released files."""
    tensors = {}
    for name, tensor in model.state_dict().items():
        stem = name.removesuffix(".weight")
        if stem != name and NORMED.search(name):
            length = tensor.flatten(1).norm(dim=1).view(-1, *[1] * (tensor.dim() - 1))
            tensors[f"{stem}.parametrizations.weight.original0"] = length
            tensors[f"{stem}.parametrizations.weight.original1"] = tensor * 3
        else:
            tensors[name] = tensor
    return {f"mel2wav.{name}": tensor.contiguous() for name, tensor in tensors.items()}


def test_the_released_vocoder_has_the_released_sizes() -> None:
    with torch.device("meta"):
        model = Vocoder(VocoderConfig())
    state = model.state_dict()
    normed = [len(w) for name, w in state.items() if NORMED.search(name) and "weight" in name]
    assert len(state) + len(normed) == 328
    assert sum(tensor.numel() for tensor in state.values()) + sum(normed) == 20_821_295


@pytest.mark.parametrize("n_frames", [1, 2, 7])
def test_a_frame_makes_480_samples(n_frames: int) -> None:
    samples = small_vocoder().vocode(small_mel(0, n_frames), seed=0)
    assert samples.shape == (n_frames * 480,)
    assert samples.dtype == torch.float32
    assert samples.isfinite().all()
    assert 0.01 < samples.std() < 0.5


def test_pieces_make_the_whole_and_only_the_seed_is_random() -> None:
    model, mel = small_vocoder(), small_mel(0, 12)
    whole = model.vocode(mel, seed=8)
    torch.manual_seed(123)  # the global generator has no say
    source, _ = model.source(model.f0(mel), SourceState.start(8, 9), draw_noise(8, 0, 12, 9, 480))
    assert torch.equal(model.filter(mel, source), whole)
    assert not torch.equal(model.vocode(mel, seed=9), whole)


def test_samples_stay_within_their_limit() -> None:
    model = small_vocoder()
    with torch.no_grad():
        model.get_parameter("conv_post.bias")[:9] = 8.0
    samples = model.vocode(small_mel(), seed=0)
    assert samples.abs().max() == torch.tensor(0.99)


def test_what_does_not_fit_is_refused() -> None:
    model, mel = small_vocoder(), small_mel(0, 4)
    for wrong in (mel.T, mel[None], mel[:, :0], mel[0]):
        with pytest.raises(RequestError, match=r"the mel is \[.*\], but must be \[80, frames\]"):
            model.vocode(wrong, seed=0)
    for n_samples in (0, 4 * 480 - 1, 5 * 480):
        with pytest.raises(RequestError, match=rf"\[{n_samples}\], but 4 .* need \[1920\]"):
            model.filter(mel, torch.zeros(n_samples))


@pytest.mark.parametrize("make", [nn.Conv1d, nn.ConvTranspose1d])
def test_a_folded_weight_is_the_normed_weight_to_the_bit(make: type[nn.Conv1d]) -> None:
    torch.manual_seed(0)
    normed = nn.Sequential(weight_norm(make(96, 64, 7)))
    with torch.no_grad():
        normed.get_parameter("0.parametrizations.weight.original0").uniform_(-2, 2)
    folded = fold_weight_norm(dict(normed.state_dict()))
    assert folded.keys() == {"0.weight", "0.bias"}
    assert torch.equal(folded["0.weight"], torch.as_tensor(normed.get_submodule("0").weight))
    assert torch.equal(folded["0.bias"], normed.get_parameter("0.bias"))


def test_a_vocoder_loads_from_a_file_in_released_form(tmp_path: Path) -> None:
    model, file = small_vocoder().double(), tmp_path / "s3gen.safetensors"
    save_file({**released(model), "flow.x": torch.ones(1)}, file)
    with torch.device("meta"):
        loaded = Vocoder(VocoderConfig(**SMALL))
    load_tensors(loaded, fold_weight_norm(read_tensors(file, "mel2wav.")), file)
    mel = small_mel(0, 5).double()
    assert torch.allclose(loaded.vocode(mel, 0), model.vocode(mel, 0), atol=1e-9)


def test_half_a_normed_weight_is_named_not_guessed(tmp_path: Path) -> None:
    tensors = {name.removeprefix("mel2wav."): t for name, t in released(small_vocoder()).items()}
    del tensors["conv_pre.parametrizations.weight.original1"]
    with pytest.raises(LayoutError, match=r"conv_pre\.weight.*conv_pre.*original0"):
        load_tensors(Vocoder(VocoderConfig(**SMALL)), fold_weight_norm(tensors), tmp_path)


def test_it_can_be_trained() -> None:
    """Work in place saves memory, and must not cost the gradients."""
    model = small_vocoder().double().requires_grad_(True)
    mel = small_mel(0, 3).double()
    source = torch.randn(3 * 480, dtype=torch.float64)
    torch.autograd.backward(model.filter(mel, source).square().sum())
    step = 1e-6
    for name in ("conv_pre.bias", "resblocks.4.activations1.1.alpha", "ups.2.weight"):
        parameter = model.get_parameter(name)
        assert parameter.grad is not None
        at = int(parameter.grad.abs().argmax())
        energy = []
        for sign in (1, -1):
            with torch.no_grad():
                parameter.view(-1)[at] += sign * step
                energy.append(float(model.filter(mel, source).square().sum()))
                parameter.view(-1)[at] -= sign * step
        slope = (energy[0] - energy[1]) / (2 * step)
        assert slope == pytest.approx(float(parameter.grad.view(-1)[at]), rel=1e-5)


def test_an_utterance_opens_with_silence_and_a_rise() -> None:
    ramp = fade_in(torch.ones(2000, dtype=torch.float64))
    assert (ramp[:481] == 0).all()
    assert (ramp[959:] == 1).all()
    assert (ramp[480:960].diff() > 0).all()
    assert ramp[480 + 239 : 480 + 241].mean() == pytest.approx(0.5)
    assert ramp[480 + 100] == pytest.approx(0.5 - 0.5 * torch.tensor(100 * torch.pi / 479).cos())


@pytest.mark.parametrize("cuts", [[480], [100, 700, 960], [959, 961], [1500]])
def test_an_opening_in_pieces_is_the_opening(cuts: list[int]) -> None:
    samples = torch.randn(2000, generator=torch.Generator().manual_seed(0))
    edges = [0, *cuts, 2000]
    pieces = [fade_in(samples[a:b], a) for a, b in itertools.pairwise(edges)]
    assert torch.equal(torch.cat(pieces), fade_in(samples))
    assert torch.equal(samples, torch.randn(2000, generator=torch.Generator().manual_seed(0)))
