"""The planted faults of tests/quality are what they say."""

from __future__ import annotations

import numpy as np
import pytest

from nightingale.measure.quality import Clip
from tests.quality import faults

TONE = np.sin(2 * np.pi * 440 * np.arange(24_000) / 24_000).astype(np.float32)
CLIP = Clip(0.5 * TONE, "we know", "ann")
OTHER = Clip(0.5 * TONE, "they came", "ben")


def strongest_hz(clip: Clip) -> float:
    return float(np.abs(np.fft.rfft(clip.samples)).argmax() * clip.rate_hz / len(clip.samples))


def test_every_other_piece_is_dropped() -> None:
    counted = Clip(np.arange(24_000, dtype=np.float32), "we know", "ann")
    left = faults.dropped_frames(counted).samples
    assert len(left) == 12_000
    assert left[2399] == 2399
    assert left[2400] == 4800


def test_half_speed_is_twice_as_long_and_an_octave_deeper() -> None:
    slow = faults.half_speed(CLIP)
    assert slow.seconds == 2
    assert strongest_hz(slow) == pytest.approx(220, abs=1)


def test_noise_is_as_loud_as_asked_for_and_fits() -> None:
    noisy = faults.noisy(CLIP, snr_db=-10)
    assert np.abs(noisy.samples).max() <= 1
    gain = noisy.samples @ CLIP.samples / (CLIP.samples @ CLIP.samples)
    noise = noisy.samples - gain * CLIP.samples
    snr_db = 20 * np.log10(gain * CLIP.samples.std() / noise.std())
    assert snr_db == pytest.approx(-10, abs=0.3)


def test_text_and_voice_are_swapped_without_touching_the_sound() -> None:
    for bad, text, voice in (
        (faults.other_text(CLIP, OTHER), "they came", "ann"),
        (faults.other_voice(CLIP, OTHER), "we know", "ben"),
    ):
        assert (bad.text, bad.voice) == (text, voice)
        assert bad.samples is CLIP.samples
