"""The mark by itself; whether Perth finds it is asked in tests/parity."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import save

from nightingale.audio import watermark
from nightingale.audio.watermark import Watermarker
from nightingale.errors import CorruptFileError

SCRIPT = Path(__file__).parents[2] / "scripts/perth.py"


@pytest.fixture(scope="module")
def watermarker() -> Watermarker:
    return Watermarker()


def clip(n_samples: int) -> NDArray[np.float32]:
    t = np.arange(n_samples) / 24_000
    vowel = sum(np.sin(2 * np.pi * 130 * k * t) / k for k in range(1, 20))
    return (0.1 * vowel * np.clip(np.sin(2 * np.pi * 2 * t), 0, 1)).astype(np.float32)


def test_the_weights_are_the_ones_that_the_script_makes() -> None:
    promised = re.search(r'RESULT_SHA256 = "(\w+)"', SCRIPT.read_text(encoding="utf-8"))
    assert promised
    assert hashlib.sha256(watermark.WEIGHTS.read_bytes()).hexdigest() == promised[1]


@pytest.mark.parametrize("n_samples", [0, 1, 2, 100, 767, 768, 769, 9_600, 24_000, 24_337])
def test_a_marked_clip_has_as_many_samples(watermarker: Watermarker, n_samples: int) -> None:
    watermarked = watermarker.apply(clip(n_samples))
    assert watermarked.shape == (n_samples,)
    assert watermarked.dtype == np.float32
    assert np.isfinite(watermarked).all()


def test_marking_is_repeatable_and_leaves_its_input_alone(watermarker: Watermarker) -> None:
    given = clip(24_000)
    before = given.copy()
    assert np.array_equal(watermarker.apply(given), Watermarker().apply(given))
    assert np.array_equal(given, before)


def test_the_mark_stays_below_2_khz_and_below_the_sound(watermarker: Watermarker) -> None:
    given = clip(48_000)
    mark = watermarker.apply(given) - given
    power = np.abs(np.fft.rfft(mark * np.hanning(48_000))) ** 2  # bins of half a hertz
    assert power[: 2 * 2_100].sum() > 0.999 * power.sum()
    assert 1e-3 < (mark**2).sum() / (given**2).sum() < 0.05


def test_the_end_is_kept_and_marked_too(watermarker: Watermarker) -> None:
    """237 samples beyond the last whole frame of 10 ms: Perth would cut them off."""
    given = clip(24_000 + 237)
    watermarked = watermarker.apply(given)
    longer = watermarker.apply(np.concatenate((given, clip(2_400))))
    assert np.abs(watermarked[-237:] - given[-237:]).max() > 1e-4
    assert np.abs(watermarked[-237:]).max() < 1.5 * np.abs(longer[24_000:24_237]).max()


def test_silence_stays_silence(watermarker: Watermarker) -> None:
    assert not watermarker.apply(np.zeros(24_000, np.float32)).any()
    half = np.concatenate((clip(24_000), np.zeros(24_000, np.float32)))
    assert np.abs(watermarker.apply(half)[26_000:]).max() < 1e-6


def test_the_pieces_are_callable_over_a_part_of_the_frames(watermarker: Watermarker) -> None:
    """What a streaming caller needs: 15 frames of context, and the loudest frame so far."""
    with torch.inference_mode():
        levels = watermark.to_levels(watermark.to_spectrum(torch.from_numpy(clip(64_000))))
        whole = watermarker.network(levels[None, : watermark.N_BINS])
        part = watermarker.network(levels[None, : watermark.N_BINS, 35:115])
        assert torch.allclose(part[..., 15:-15], whole[..., 50:100], atol=1e-6)
        loudest = levels.sum(dim=0).max()
        gate = watermark.gate(levels)
        assert 0 < gate.sum() < len(gate)
        assert torch.equal(watermarker.change(levels).abs().amax(dim=0) > 0, gate > 0)
        assert torch.equal(watermark.gate(levels[:, 30:60], loudest), gate[30:60])


def test_frames_below_a_twentieth_of_the_loudest_are_left_alone() -> None:
    levels = torch.tensor([1.0, 0.049, 0.051, 0.0, 0.5]).repeat(watermark.N_FFT // 2 + 1, 1)
    assert watermark.gate(levels).tolist() == [1, 0, 1, 0, 1]
    twice = 2 * levels.sum(dim=0).max()
    assert watermark.gate(levels, loudest=twice).tolist() == [1, 0, 0, 0, 1]


def test_a_spectrum_that_is_not_changed_gives_the_wave_back() -> None:
    wave = torch.from_numpy(clip(9_999))
    spectrum = watermark.to_spectrum(wave)
    before = spectrum.clone()
    watermark.turn_up(spectrum, torch.ones(watermark.N_BINS, spectrum.shape[1]))
    assert torch.equal(spectrum, before), "the given spectrum is left alone"
    unchanged = watermark.turn_up(spectrum, torch.zeros(watermark.N_BINS, spectrum.shape[1]))
    assert torch.allclose(watermark.from_spectrum(unchanged, 9_999), wave, atol=1e-6)


def test_a_missing_or_damaged_file_is_named(tmp_path: Path) -> None:
    damaged = tmp_path / "perth.safetensors"
    for data in (None, b"not it", save({"layers.0.conv.weight": torch.zeros(3)})):
        if data is not None:
            damaged.write_bytes(data)
        with pytest.raises(CorruptFileError, match=r"perth.safetensors .* reinstall"):
            Watermarker(damaged)
