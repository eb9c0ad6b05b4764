"""The two embeddings of a speaker: windows, trimming, lengths, and what they do not hear."""

from __future__ import annotations

import pytest
import torch

from nightingale.audio.mel import speaker_mel
from nightingale.errors import AudioError
from nightingale.voice.speaker_encoder import SpeakerEncoder, count_windows, trim, windows_of
from nightingale.voice.xvector import XVector, _Gated, _Norm
from tests.audio.corpus import buzz
from tests.voice.tiny import tiny_encoders


def speech(seconds: float, seed: int = 0) -> torch.Tensor:
    return torch.from_numpy(buzz(seconds, 16_000, seed))


@pytest.mark.parametrize(
    ("n_frames", "n_windows"),
    [
        *((1, 1), (159, 1), (160, 1), (204, 1), (205, 2), (237, 2), (281, 2), (282, 3)),
        *((501, 5), (1001, 12), (1501, 18)),  # 5, 10 and 15 s
    ],
)
def test_a_last_window_counts_when_it_is_mostly_filled(n_frames: int, n_windows: int) -> None:
    assert count_windows(n_frames) == n_windows
    windows = windows_of(torch.arange(1.0, n_frames + 1)[:, None].expand(-1, 40))
    assert windows.shape == (n_windows, 160, 40)
    assert windows[-1, 0, 0] == 77 * (n_windows - 1) + 1
    end = 77 * (n_windows - 1) + 160
    assert windows[-1, -1, 39] == (end if n_frames >= end else 0)


@pytest.mark.parametrize(
    ("before", "after", "kept"),
    [(0, 0, (0, 32_000)), (16_000, 0, (15_360, 48_000)), (0, 16_000, (0, 33_280))],
)
def test_quiet_ends_are_left_out(before: int, after: int, kept: tuple[int, int]) -> None:
    wave = torch.sin(torch.arange(32_000) * 0.1)
    whole = torch.cat((torch.zeros(before), wave, 0.001 * torch.ones(after)))
    start, end = kept
    assert torch.equal(trim(whole), whole[start:end])


def test_a_wave_of_one_loudness_is_left_as_it_is() -> None:
    assert trim(torch.zeros(5000)).shape == (5000,)
    assert trim(0.3 * torch.ones(5000)).shape == (5000,)


def test_the_speaker_is_a_unit_vector_that_silence_around_does_not_change() -> None:
    encoder = tiny_encoders().speaker
    speaker = encoder.embed(speech(4.0))
    assert speaker.shape == (256,)
    assert float(speaker.norm()) == pytest.approx(1.0, abs=1e-6)
    quiet = torch.zeros(512 * 40)
    around = encoder.embed(torch.cat((quiet, trim(speech(4.0)), quiet)))
    other = encoder.embed(speech(4.0, seed=3))
    assert torch.dot(speaker, around) > 0.98
    assert torch.dot(speaker, around) > torch.dot(speaker, other)


@pytest.mark.slow
def test_many_windows_are_the_mean_of_each_alone() -> None:
    encoder = tiny_encoders().speaker
    windows = windows_of(speaker_mel(trim(speech(32.0))))  # more than one batch
    assert len(windows) > 32
    with torch.inference_mode():
        mean = torch.stack([encoder(window[None])[0] for window in windows]).mean(dim=0)
    assert torch.allclose(encoder.embed(speech(32.0)), mean / mean.norm(), atol=1e-6)


@pytest.mark.slow
def test_the_xvector_does_not_hear_loudness_but_who_speaks() -> None:
    encoder = tiny_encoders().xvector
    one = encoder.embed(speech(4.0))
    assert one.shape == (192,)
    louder, other = encoder.embed(2 * speech(4.0)), encoder.embed(speech(4.0, seed=2))
    assert (one - louder).norm() < 0.1 * (one - other).norm()


def test_statistics_of_training_are_used_as_they_are() -> None:
    norm = _Norm(2)
    norm.running_mean.copy_(torch.tensor([1.0, -1.0]))
    norm.running_var.copy_(torch.tensor([4.0, 0.25]))
    norm.train()  # makes no difference: there is no such mode
    out = norm(torch.tensor([[[3.0], [0.0]]]))
    assert torch.allclose(out.flatten(), torch.tensor([1.0, 2.0]), atol=1e-4)


def test_a_gate_sees_the_mean_of_its_own_hundred_frames() -> None:
    gated = _Gated(2, 1, 1).requires_grad_(False)
    gated.linear_local.weight.zero_()
    gated.linear_local.weight[:, :, 1] = 1.0  # passes its frame through
    x = torch.cat((torch.zeros(1, 2, 100), 10 * torch.ones(1, 2, 50)), dim=-1)
    for linear, bias in ((gated.linear1, -15.0), (gated.linear2, -5.0)):
        assert linear.bias is not None
        linear.weight.fill_(1.0)
        linear.bias.fill_(bias)  # opens above the mean of everything, 3.33 a channel
    out = gated(x)[0, 0]
    assert (out[:100] == 0).all()
    assert torch.allclose(out[100:], torch.full((50,), 20.0), atol=0.1)


@pytest.mark.slow
def test_too_short_for_a_frame_is_an_error() -> None:
    with pytest.raises(AudioError, match="too few"):
        tiny_encoders().xvector.embed(torch.zeros(399))
    with pytest.raises(AudioError, match="too few"):
        tiny_encoders().speaker.embed(torch.zeros(200))


def test_the_released_sizes_have_their_parameters() -> None:
    with torch.device("meta"):
        sizes = [
            sum(p.numel() for p in part.parameters()) for part in (XVector(), SpeakerEncoder())
        ]
    assert sizes == [6_848_544, 1_423_616]
