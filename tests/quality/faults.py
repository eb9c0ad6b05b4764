"""Faults to plant in good clips: each is one that a model, or the code around it, could have."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from nightingale.audio.files import resample
from nightingale.measure.quality import Clip

PIECE_MS = 100


def dropped_frames(clip: Clip) -> Clip:
    """Every other 100 ms is cut out."""
    n_piece = clip.rate_hz * PIECE_MS // 1000
    is_kept = np.arange(len(clip.samples)) // n_piece % 2 == 0
    return replace(clip, samples=clip.samples[is_kept])


def half_speed(clip: Clip) -> Clip:
    """Twice as long and an octave deeper: a wrong rate."""
    return replace(clip, samples=resample(clip.samples, clip.rate_hz, 2 * clip.rate_hz))


def noisy(clip: Clip, snr_db: float = -10.0) -> Clip:
    """White noise, as loud as that against the speech; then all of it turned down to fit."""
    noise = np.random.default_rng(0).standard_normal(len(clip.samples))
    gain = np.sqrt(np.mean(clip.samples.astype(np.float64) ** 2)) * 10 ** (-snr_db / 20)
    mixed = clip.samples + gain * noise
    return replace(clip, samples=(mixed / max(1.0, np.abs(mixed).max())).astype(np.float32))


def other_text(clip: Clip, other: Clip) -> Clip:
    """The speech of one clip where that of another was asked for."""
    return replace(clip, text=other.text)


def other_voice(clip: Clip, other: Clip) -> Clip:
    """The speech of one voice where another was asked for."""
    return replace(clip, voice=other.voice)
