"""What Fledgling's vocoder should say, by WORLD's analysis: `python -m training.world`, minutes.

Of every 5 ms: the pitch, how loud each frequency is in the voice's pulses, and how loud in its
noise. Speech made of these sounds nearly as spoken (docs/log.md), so a vocoder can learn them
directly, without a waveform. Half of the utterances are played faster or slower first, which makes
other voices of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import soxr
import torch
import typer
from numpy.typing import NDArray
from torch import Tensor

from nightingale.audio.mel import flow_mel
from nightingale.core import SAMPLES_PER_FRAME, SAMPLES_PER_SECOND
from training import corpus
from training.work import work

FOLDER = work() / "world"
HOP, N_BINS = 120, 241
PER_FRAME = SAMPLES_PER_FRAME // HOP
FLOOR = -12.0  # of logarithms
MAIN_VOICE, MAIN_MINUTES, MINUTES = "heart", 25.0, 2.5  # of the first voice, of each other one
AS_SPOKEN, SLOWEST, FASTEST = 0.5, 0.74, 1.32
SOFTER_DB, LOUDER_DB = -6.0, 1.0
MIN_FRAMES, MIN_VOICED = 42, 20
Array = NDArray[np.floating]


@dataclass(frozen=True, slots=True, eq=False)
class Analysis:
    """One utterance of M mel frames, or several behind each other; T = 4 M + 1 of each."""

    mel: Array  # (M, 80)
    f0: Array  # (M,) in Hz at the end of each frame; goes on through unvoiced sounds
    voiced: NDArray[np.bool_]  # (M,)
    pulses: Array  # (T, 241): logarithm of the gain of pulses
    noise: Array  # (T, 241): of noise
    envelope: Array  # (T, 241): of both
    samples: NDArray[np.int16]  # (M * 480,)


def pitch_of(samples: Array) -> tuple[Array, NDArray[np.bool_]]:
    """In Hz every 5 ms, interpolated where unvoiced, and where it is voiced."""
    import pyworld

    f0, _ = pyworld.harvest(
        samples.astype(np.float64), SAMPLES_PER_SECOND, f0_floor=60, f0_ceil=500, frame_period=5
    )
    voiced, at = f0 > 0, np.arange(len(f0))
    if voiced.sum() < MIN_VOICED:
        return f0, np.zeros_like(voiced)
    return np.interp(at, at[voiced], f0[voiced]), voiced


def gains(samples: Array, f0: Array, voiced: NDArray[np.bool_]) -> tuple[Array, Array, Array]:
    """Logarithms of the gains of pulses and of noise, and of the envelope, (T, 241) each.

    A unit cosine at each overtone, f0 apart, has the density of white noise of variance 1 when
    its amplitude is 2 sqrt(f0 / rate)."""
    import pyworld

    wave, rate = samples.astype(np.float64), SAMPLES_PER_SECOND
    pitch, times = np.where(voiced, f0, 0.0), np.arange(len(f0)) * HOP / rate
    power = pyworld.cheaptrick(wave, pitch, times, rate)
    n_fft = 2 * (power.shape[1] - 1)
    share = pyworld.d4c(wave, pitch, times, rate, fft_size=n_fft)  # of noise, in amplitude
    envelope = _at_bins(np.log(power + 1e-12)) / 2
    share = _at_bins(share).clip(1e-3, 1 - 1e-4)
    amplitude = np.log(2 * np.sqrt(f0 / rate))[:, None]
    pulses = envelope + np.log(1 - share**2) / 2 + amplitude
    pulses = np.where(voiced[:, None], pulses, FLOOR)
    return pulses.clip(FLOOR), (envelope + np.log(share)).clip(FLOOR), envelope


def _at_bins(rows: Array) -> Array:
    """Interpolated to the bins of the vocoder's Fourier transform."""
    at = np.arange(N_BINS) * (rows.shape[1] - 1) / (N_BINS - 1)
    below = at.astype(int).clip(max=rows.shape[1] - 2)
    return rows[:, below] * (1 - at + below) + rows[:, below + 1] * (at - below)


def minimum_phase(envelope: Tensor) -> Tensor:
    """(..., 241) logarithms of magnitudes -> phases of the causal filter that has them."""
    both = torch.cat((envelope, envelope[..., 1:-1].flip(-1)), dim=-1)
    n = both.shape[-1]
    causal = torch.full((n,), 2.0)
    causal[0] = causal[n // 2] = 1.0
    causal[n // 2 + 1 :] = 0.0
    cepstrum: Tensor = torch.fft.ifft(both).real
    return torch.fft.fft(cepstrum * causal).imag[..., : envelope.shape[-1]]


def analyse(
    samples: Array, f0: Array, voiced: NDArray[np.bool_], speed: float, gain: float
) -> Analysis | None:
    """One utterance, played at this speed; None if it is too short."""
    if speed != 1.0:
        samples = soxr.resample(samples, SAMPLES_PER_SECOND * speed, SAMPLES_PER_SECOND)
    n = len(samples) // SAMPLES_PER_FRAME
    if n < MIN_FRAMES:
        return None
    samples = (samples[: n * SAMPLES_PER_FRAME] * gain).clip(-0.99, 0.99).astype(np.float32)
    at = np.arange(PER_FRAME * n + 1) * speed
    f0 = np.interp(at, np.arange(len(f0)), f0) * speed
    voiced = np.interp(at, np.arange(len(voiced)), voiced.astype(float)) > 0.5
    ends = slice(PER_FRAME, None, PER_FRAME)
    return Analysis(
        flow_mel(torch.from_numpy(samples)).numpy(),
        f0[ends],
        voiced[ends],
        *gains(samples, f0, voiced),
        np.round(samples * 32767).astype(np.int16),
    )


def write(voice: str, minutes: float) -> Path:
    """So much of a voice, unless it is there."""
    file = FOLDER / f"{voice}.npz"
    if file.is_file():
        return file
    random, kept, n_frames = np.random.default_rng(list(voice.encode())), list[Analysis](), 0
    as_spoken: list[bool] = []
    for utterance in corpus.read(voice):
        if utterance.split != "train":
            continue
        samples = utterance.samples()
        f0, voiced = pitch_of(samples)
        speed = 1.0
        if random.random() >= AS_SPOKEN:
            speed = round(math.exp(random.uniform(math.log(SLOWEST), math.log(FASTEST))), 2)
        gain = 10 ** (random.uniform(SOFTER_DB, LOUDER_DB) / 20)
        found = analyse(samples, f0, voiced, speed, gain) if voiced.any() else None
        if found is None:
            continue
        kept.append(found)
        as_spoken.append(speed == 1.0)
        n_frames += len(found.mel)
        if n_frames >= minutes * 60 * SAMPLES_PER_SECOND / SAMPLES_PER_FRAME:
            break
    columns = {field.name: [getattr(row, field.name) for row in kept] for field in fields(Analysis)}
    joined: dict[str, Any] = {n: _half(np.concatenate(rows)) for n, rows in columns.items()}
    file.parent.mkdir(parents=True, exist_ok=True)
    lengths = np.array([len(row.mel) for row in kept])
    np.savez(file, n_frames=lengths, as_spoken=np.array(as_spoken), **joined)
    return file


def _half(rows: NDArray[np.generic]) -> NDArray[np.generic]:
    return rows.astype(np.float16) if rows.ndim == 2 else rows


def main() -> None:
    """All voices of the corpus but those that are held out."""
    for voice in corpus.cast():
        if voice not in corpus.HELD_OUT_VOICES:
            typer.echo(write(voice, MAIN_MINUTES if voice == MAIN_VOICE else MINUTES))


if __name__ == "__main__":
    typer.run(main)
