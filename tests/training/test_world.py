"""WORLD's analysis in the vocoder's own terms: what it says of speech makes that speech."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from nightingale.backends.torch.vocoder.model import excitation, sound
from nightingale.backends.torch.vocoder.source import Pulses, SourceState, draw_noise
from training import vocoder, world
from training.world import FLOOR, PER_FRAME, analyse, gains, minimum_phase

pytestmark = pytest.mark.filterwarnings("ignore:pkg_resources is deprecated")
N_FRAMES = 60


def pulses(f0: float, gain: float) -> NDArray[np.float32]:
    """A second and more of unit cosines at all overtones, times a gain."""
    pitch = torch.full((N_FRAMES,), f0)
    made, _ = Pulses()(pitch, SourceState.start(1, 1), torch.zeros(N_FRAMES, 1, 480))
    return np.asarray(gain * made[:, 0].numpy())


def fine(value: float) -> NDArray[np.float64]:
    return np.full(PER_FRAME * N_FRAMES + 1, value)


@pytest.mark.parametrize(("f0", "gain"), [(120.0, 0.01), (240.0, 0.004)])
def test_world_gain_of_pulses_is_theirs(f0: float, gain: float) -> None:
    """Behind a slope as voices have it: what is flat counts as unvoiced."""
    decay = 0.94 ** np.arange(200)
    found, noise, _ = gains(np.convolve(pulses(f0, gain), decay), fine(f0), fine(1) > 0)
    wanted = np.log(gain * np.abs(np.fft.rfft(decay, 2 * (world.N_BINS - 1))))
    inner, band = slice(20, -20), slice(10, 160)  # not the edges of time and spectrum
    off = np.median(found[inner], axis=0)[band] - wanted[band]
    assert np.abs(off).max() < 0.3
    assert abs(off.mean()) < 0.1
    assert (np.median(noise[inner], axis=0)[band] < wanted[band] - 1).all()


def test_world_gain_of_noise_is_its_deviation() -> None:
    wave = 0.02 * np.random.default_rng(0).standard_normal(480 * N_FRAMES)
    found, noise, _ = gains(wave, fine(150), fine(0) > 0)
    assert (found == FLOOR).all()
    assert np.median(noise) == pytest.approx(np.log(0.02), abs=0.3)


def test_minimum_phase_is_that_of_a_causal_filter() -> None:
    """One pole: its phase is known."""
    turns = torch.linspace(0, torch.pi, world.N_BINS, dtype=torch.float64)
    response = 1 / (1 - 0.7 * torch.exp(-1j * turns))
    found = minimum_phase(response.abs().log())
    assert torch.allclose(found, response.angle(), atol=1e-6)


def test_speech_of_its_own_analysis_has_the_same_spectrum() -> None:
    """Pulses of a vowel-like envelope, analysed, and made again by the vocoder's head."""
    wave = pulses(160.0, 0.01)
    colored = np.convolve(wave, np.exp(-np.arange(80) / 12) * np.cos(np.arange(80) * 0.3), "same")
    found = analyse(colored, fine(160), fine(1) > 0, 1.0, 1.0)
    assert found is not None
    assert len(found.mel) == N_FRAMES
    said = torch.from_numpy(
        np.concatenate((found.pulses, np.zeros_like(found.noise), found.noise), axis=1).T
    ).float()
    noise = draw_noise(2, 0, N_FRAMES, 1, 480)
    source, _ = Pulses()(torch.from_numpy(found.f0).float(), SourceState.start(2, 1), noise)
    spectra = excitation(source[None], vocoder.CONFIG)
    made = sound(said[None], spectra, vocoder.CONFIG)
    wanted = torch.from_numpy(found.samples).float()[None] / 32767
    silent = torch.zeros_like(wanted)
    near = vocoder.spectral_distance(made, wanted)
    assert near < 0.5 * vocoder.spectral_distance(silent, wanted)
    wrong = sound(said.roll(40, 0)[None], spectra, vocoder.CONFIG)  # formants elsewhere
    assert near < 0.5 * vocoder.spectral_distance(wrong, wanted)


def test_an_utterance_played_faster_is_shorter_and_higher() -> None:
    found = analyse(pulses(160.0, 0.01), fine(160), fine(1) > 0, 1.25, 0.5)
    assert found is not None
    assert len(found.mel) == round(N_FRAMES / 1.25)
    assert np.median(found.f0) == pytest.approx(200)
    assert len(found.pulses) == PER_FRAME * len(found.mel) + 1
    assert analyse(pulses(160.0, 0.01), fine(160), fine(1) > 0, 3.0, 1.0) is None  # too short
