"""The small vocoder's head: pulses and noise, each times what the network says of it."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from nightingale.backends.torch.vocoder.fast import FastVocoder
from nightingale.backends.torch.vocoder.model import VocoderConfig, excitation, sound
from nightingale.backends.torch.vocoder.source import (
    PULSE_BAND_HZ,
    TURN,
    Pulses,
    SourceState,
    dirichlet,
    draw_noise,
    glide,
)
from nightingale.core import SAMPLES_PER_FRAME as N
from nightingale.errors import OptionError, RequestError
from nightingale.nn import native
from nightingale.weights.config import sized
from tests.backends.torch.vocoder.small import SMALL_FILTER, small_mel, small_vocoder

CONFIG = VocoderConfig(**SMALL_FILTER)
PITCHES = torch.tensor([0.0, 210.0, 190.5, 5.0, 0.0, 333.25, 480.0, 61.0])


def drawn(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_pulses_are_a_sum_of_cosines() -> None:
    phase = torch.randint(TURN, (50,), generator=torch.Generator().manual_seed(0))
    phase[:4] = torch.tensor([0, 1, TURN // 2, TURN - 1])
    for n in (1.0, 22.0, 180.0):
        turns = phase.double() * (2 * torch.pi / TURN)
        wanted = sum(torch.cos(h * turns) for h in range(1, int(n) + 1))
        found = dirichlet(phase, torch.full((50,), n, dtype=torch.float64))
        assert torch.allclose(found, torch.as_tensor(wanted), atol=1e-5 * n**3)
        assert found[0] == n


def test_pitch_glides_from_the_end_of_a_frame_to_that_of_the_next() -> None:
    before, after = torch.tensor([200.0, 300.0]), torch.tensor([300.0, 150.0])
    phase, last = glide(before, after, torch.tensor(0), N)
    turns = phase.flatten().double() / TURN
    hertz = turns.diff().remainder(1) * 24_000
    assert hertz[0] == pytest.approx(200, abs=1)
    assert hertz[N - 2] == pytest.approx(300, abs=1)
    assert hertz[-1] == pytest.approx(150, abs=1)
    assert last == phase[-1, -1]


@pytest.mark.parametrize("cuts", [[1], [3, 4], list(range(1, 8))])
def test_pulses_in_pieces_are_the_whole_to_the_bit(cuts: list[int]) -> None:
    pulses, begin = Pulses(), SourceState.start(4, 1)
    whole, end = pulses(PITCHES, begin, draw_noise(4, 0, 8, 1, N))
    state, pieces = begin, []
    for first, last in itertools.pairwise([0, *cuts, 8]):
        noise = draw_noise(4, state.frame, last - first, 1, N)
        piece, state = pulses(PITCHES[first:last], state, noise)
        pieces.append(piece)
    assert torch.equal(torch.cat(pieces), whole)
    assert torch.equal(state.phase, end.phase)
    assert (state.frame, state.f0) == (end.frame, end.f0) == (8, 61.0)


def test_unvoiced_frames_have_no_pulses_and_all_frames_noise() -> None:
    made, _ = Pulses()(PITCHES, SourceState.start(4, 1), draw_noise(4, 0, 8, 1, N))
    pulses, noise = made.view(8, N, 2).unbind(2)
    assert [bool(frame.any()) for frame in pulses] == [bool(f0 > 10) for f0 in PITCHES]
    assert (noise.std(1) > 0.8).all()


def test_pulses_have_no_overtone_beyond_their_band() -> None:
    made, _ = Pulses()(torch.full((50,), 440.0), SourceState.start(4, 1), torch.zeros(50, 1, N))
    window = torch.hann_window(24_000)
    spectrum = torch.fft.rfft(made[:, 0] * window).abs()
    above = spectrum[PULSE_BAND_HZ + 20 :].square().sum() / spectrum.square().sum()
    assert above < 1e-6
    assert spectrum[24 * 440 - 2 : 24 * 440 + 3].max() > 0.9 * spectrum.max()


def test_a_filter_multiplies_the_spectra_of_its_source() -> None:
    """Straight from the description, by another transform."""
    source, said = drawn(10 * N, 2), 0.5 * drawn(1, CONFIG.n_out, 10 * N // CONFIG.hop + 1)
    made = sound(said, excitation(source[None], CONFIG), CONFIG)[0]
    n_fft = 4 * CONFIG.hop
    window = torch.hann_window(n_fft, dtype=torch.float64)

    def spectrum(samples: Tensor) -> Tensor:
        return torch.stft(samples, n_fft, CONFIG.hop, n_fft, window, return_complex=True)

    gain, phase, noise_gain = said[0].chunk(3)
    wanted = torch.polar(gain.exp(), phase) * spectrum(source[:, 0])
    wanted = wanted + noise_gain.exp() * spectrum(source[:, 1])
    samples = torch.istft(wanted, n_fft, CONFIG.hop, n_fft, window).clamp(-0.99, 0.99)
    assert torch.allclose(made, samples, atol=1e-9)


def test_a_filter_says_nothing_without_a_source() -> None:
    vocoder, mel = small_vocoder(head="filter"), small_mel(n_frames=8)
    assert not vocoder.filter(mel, torch.zeros(8 * N, 2)).any()
    assert vocoder.vocode(mel, 1).std() > 0.01


def test_a_source_of_one_channel_is_refused() -> None:
    vocoder, mel = small_vocoder(head="filter"), small_mel(n_frames=8)
    with pytest.raises(RequestError, match=r"need \[3840, 2\]"):
        vocoder.filter(mel, torch.zeros(8 * N))


def test_a_head_that_is_not_known_is_refused() -> None:
    with pytest.raises(OptionError, match="'other' is none of 'spectrum', 'filter'"):
        sized(VocoderConfig(), {**SMALL_FILTER, "head": "other"})


def test_a_filter_in_8_bits_sounds_nearly_the_same() -> None:
    library = native.int8()
    if library is None:
        pytest.skip("no kernels in 8 bits run here")
    slow, mel = small_vocoder(head="filter"), small_mel(n_frames=30)
    exact, near = slow.vocode(mel, 1), FastVocoder(slow, library).vocode(mel, 1)
    noise_db = 10 * torch.log10((near - exact).square().sum() / exact.square().sum())
    assert -80 < noise_db < -30
