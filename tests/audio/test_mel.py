"""The mel recipes, rates and loudness: lengths, tones where they belong, known levels."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from nightingale.audio.loudness import at_loudness, loudness
from nightingale.audio.mel import (
    flow_mel,
    kaldi_fbank,
    kaldi_filters,
    mel_filters,
    speaker_mel,
    token_log_mel,
)
from nightingale.audio.resample import resample
from nightingale.errors import AudioError
from tests.audio.corpus import buzz

Recipe = Callable[[Tensor], Tensor]


def tone(hz: float, rate_hz: int, seconds: float = 1.0, level: float = 0.5) -> Tensor:
    time = torch.arange(int(seconds * rate_hz), dtype=torch.float64) / rate_hz
    return (level * torch.sin(2 * math.pi * hz * time)).float()


@pytest.mark.parametrize(
    ("recipe", "n_samples", "shape"),
    [
        (flow_mel, 24_000, (50, 80)),
        (flow_mel, 24_479, (50, 80)),
        (flow_mel, 24_480, (51, 80)),
        (flow_mel, 721, (1, 80)),
        (token_log_mel, 16_000, (128, 100)),
        (token_log_mel, 16_159, (128, 100)),
        (token_log_mel, 16_160, (128, 101)),
        (speaker_mel, 16_000, (101, 40)),
        (speaker_mel, 16_159, (101, 40)),
        (kaldi_fbank, 16_000, (98, 80)),
        (kaldi_fbank, 400, (1, 80)),
        (kaldi_fbank, 560, (2, 80)),
    ],
)
def test_frames_follow_from_samples(recipe: Recipe, n_samples: int, shape: tuple[int, int]) -> None:
    mel = recipe(torch.from_numpy(buzz(2.0))[:n_samples])
    assert mel.shape == shape
    assert mel.isfinite().all()


@pytest.mark.parametrize(
    ("recipe", "n_samples"),
    [(flow_mel, 720), (token_log_mel, 200), (speaker_mel, 200), (kaldi_fbank, 399), (flow_mel, 0)],
)
def test_too_little_sound_is_an_error_not_a_crash(recipe: Recipe, n_samples: int) -> None:
    with pytest.raises(AudioError, match=f"{n_samples} samples are too few"):
        recipe(torch.zeros(n_samples))


@pytest.mark.parametrize("hz", [200.0, 1000.0, 2520.0, 6000.0])
@pytest.mark.parametrize(
    ("recipe", "rate_hz", "n_bands"),
    [(flow_mel, 24_000, 80), (token_log_mel, 16_000, 128), (speaker_mel, 16_000, 40)],
)
def test_a_tone_is_loudest_in_its_band(
    recipe: Recipe, rate_hz: int, n_bands: int, hz: float
) -> None:
    mel = recipe(tone(hz, rate_hz))
    middle = mel[:, 50] if recipe is token_log_mel else mel[25]
    n_fft = 1920 if rate_hz == 24_000 else 400
    filters = mel_filters(rate_hz, n_fft, n_bands)
    assert int(middle.argmax()) == int(filters[:, round(hz * n_fft / rate_hz)].argmax())


def test_silence_sits_on_the_floor_of_each_recipe() -> None:
    silence = torch.zeros(16_000)
    assert flow_mel(silence).max() < -6  # sqrt(1e-9) through the filters
    assert (token_log_mel(silence) == (math.log10(1e-10) + 4) / 4).all()
    assert (speaker_mel(silence) == 0).all()
    assert kaldi_fbank(silence)[0, 0] == pytest.approx(math.log(2**-23))


def test_the_token_mel_is_cut_eight_decades_below_the_loudest_of_the_whole_wave() -> None:
    quiet, loud = tone(300, 16_000, level=1e-4), tone(300, 16_000, level=1.0)
    alone = token_log_mel(quiet)
    beside = token_log_mel(torch.cat((quiet, loud)))[:, :90]
    assert beside.min() > alone.min()  # the floor rose with what comes later
    assert float(beside.min()) == pytest.approx(float(token_log_mel(loud).max()) - 2.0, abs=1e-3)


@pytest.mark.parametrize(
    ("rate_hz", "n_fft", "peaks"),
    [
        (24_000, 1920, {0: 3, 20: 63, 40: 138, 79: 616}),
        (16_000, 400, {0: 1, 32: 19, 64: 43, 127: 195}),
        (16_000, 400, {0: 2, 10: 20, 20: 44, 39: 185}),
    ],
)
def test_mel_filters_peak_at_known_bins(rate_hz: int, n_fft: int, peaks: dict[int, int]) -> None:
    filters = mel_filters(rate_hz, n_fft, max(peaks) + 1)
    assert {band: int(filters[band].argmax()) for band in peaks} == peaks


def test_kaldi_filters_peak_at_known_bins() -> None:
    peaks = {0: 1, 20: 22, 40: 59, 79: 248}
    assert {band: int(kaldi_filters()[band].argmax()) for band in peaks} == peaks


def test_mel_filters_have_equal_area_and_kaldis_equal_height() -> None:
    areas = mel_filters(24_000, 1920, 80).sum(dim=1) * 24_000 / 1920
    assert torch.allclose(areas[30:], torch.ones(50), atol=0.05)
    assert kaldi_filters().shape == (80, 257)
    assert float(kaldi_filters().max()) <= 1.0
    assert (kaldi_filters()[:, -1] == 0).all()


@pytest.mark.parametrize(
    ("n_in", "from_hz", "to_hz", "n_out"),
    [
        (24_000, 24_000, 16_000, 16_000),
        (24_001, 24_000, 16_000, 16_001),
        (3, 24_000, 16_000, 2),
        (1, 24_000, 16_000, 1),
        (441, 44_100, 24_000, 240),
        (5, 24_000, 24_000, 5),
    ],
)
def test_the_sinc_gives_as_many_samples_as_the_time_has(
    n_in: int, from_hz: int, to_hz: int, n_out: int
) -> None:
    assert resample(torch.ones(n_in), from_hz, to_hz).shape == (n_out,)


@pytest.mark.parametrize(("hz", "level"), [(100.0, 1.0), (5000.0, 1.0), (10_000.0, 0.0)])
def test_the_sinc_keeps_what_fits_and_drops_what_does_not(hz: float, level: float) -> None:
    wave = resample(tone(hz, 24_000), 24_000, 16_000)
    kept = level * tone(hz, 16_000)
    assert float((wave - kept)[500:-500].abs().max()) < 0.01


@pytest.mark.parametrize("rate_hz", [16_000, 24_000, 48_000])
def test_a_sine_at_full_scale_has_the_loudness_of_the_standard(rate_hz: int) -> None:
    """BS.1770 sets a 997 Hz sine at full scale to -3.01 LUFS."""
    for level, lufs in ((1.0, -3.01), (0.1, -23.01)):
        wave = tone(997.0, rate_hz, 4.0, level).numpy()
        assert loudness(wave, rate_hz) == pytest.approx(lufs, abs=0.1)


@pytest.mark.slow
def test_pauses_do_not_count_as_quiet_speech() -> None:
    wave = buzz(6.0)
    paused = np.concatenate((wave, np.zeros(24_000 * 6, np.float32), 0.01 * wave))
    assert loudness(paused, 24_000) == pytest.approx(loudness(wave, 24_000), abs=0.2)


@pytest.mark.parametrize("n_samples", [0, 100, 9600, 48_000])
def test_silence_has_no_loudness_and_stays_silence(n_samples: int) -> None:
    silence = np.zeros(n_samples, np.float32)
    assert loudness(silence, 24_000) == -math.inf
    assert np.array_equal(at_loudness(silence, 24_000, -27.0), silence)


def test_a_wave_is_brought_to_a_loudness_and_stays_single_precision() -> None:
    wave = at_loudness(buzz(6.0), 24_000, -27.0)
    assert loudness(wave, 24_000) == pytest.approx(-27.0, abs=1e-4)
    assert wave.dtype == np.float32
