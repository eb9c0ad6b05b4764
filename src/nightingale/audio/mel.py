"""The four mel recipes of the family, each named after who reads it.

    flow_mel        24 kHz, 80 bands, 50 frames a second    the flow, and all that it makes
    token_log_mel   16 kHz, 128 bands, 100 a second         the speech tokenizer
    speaker_mel     16 kHz, 40 bands, 100 a second          the speaker encoder
    kaldi_fbank     16 kHz, 80 bands, 100 a second          the x-vector

Waves are (N,) float32 between -1 and 1. Knows nothing of models or files.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from nightingale.core import SAMPLES_PER_FRAME, SAMPLES_PER_SECOND
from nightingale.errors import AudioError
from nightingale.nn.device import HOST

SPEECH_HZ = 16_000  # what the encoders of a voice listen at
MEL_TOP_HZ = 8_000
MEL_TOP = 15 + 27 * math.log(MEL_TOP_HZ / 1000) / math.log(6.4)  # about 45.2 mel
HOP, WINDOW = 160, 400  # of the recipes at 16 kHz: 10 and 25 ms
N_FBANK_FFT = 512


def flow_mel(wave: Tensor) -> Tensor:
    """(N,) at 24 kHz -> (M, 80), M = N // 480"""
    n_fft = 4 * SAMPLES_PER_FRAME
    padded = _reflect(wave, (n_fft - SAMPLES_PER_FRAME) // 2)
    spectrum = _stft(padded, n_fft, SAMPLES_PER_FRAME)
    magnitude = torch.sqrt(torch.view_as_real(spectrum).pow(2).sum(-1) + 1e-9)
    bands = mel_filters(SAMPLES_PER_SECOND, n_fft, 80).to(wave.device) @ magnitude
    return bands.clamp(min=1e-5).log().T


def token_log_mel(wave: Tensor) -> Tensor:
    """(N,) at 16 kHz -> (128, N // 160); the floor hangs on the loudest frame of the whole wave."""
    spectrum = _stft(_reflect(wave, WINDOW // 2), WINDOW, HOP)[..., :-1]
    bands = mel_filters(SPEECH_HZ, WINDOW, 128).to(wave.device) @ spectrum.abs() ** 2
    log = bands.clamp(min=1e-10).log10()
    return (torch.maximum(log, log.max() - 8.0) + 4.0) / 4.0


def speaker_mel(wave: Tensor) -> Tensor:
    """(N,) at 16 kHz -> (1 + N // 160, 40), plain power"""
    spectrum = _stft(_reflect(wave, WINDOW // 2), WINDOW, HOP)
    return (mel_filters(SPEECH_HZ, WINDOW, 40).to(wave.device) @ spectrum.abs() ** 2).T


def kaldi_fbank(wave: Tensor) -> Tensor:
    """(N,) at 16 kHz -> (1 + (N - 400) // 160, 80), log power, no frame hanging over an edge"""
    if wave.shape[0] < WINDOW:
        raise AudioError(_too_short(wave, WINDOW))
    frames = wave.unfold(0, WINDOW, HOP)  # (F, 400)
    frames = frames - frames.mean(dim=1, keepdim=True)
    before = torch.cat((frames[:, :1], frames[:, :-1]), dim=1)
    frames = (frames - 0.97 * before) * _povey_window().to(wave.device)
    power = torch.fft.rfft(F.pad(frames, (0, N_FBANK_FFT - WINDOW))).abs() ** 2
    bands = power @ kaldi_filters().to(wave.device).T
    return bands.clamp(min=torch.finfo(torch.float32).eps).log()


@lru_cache(maxsize=8)
def mel_filters(rate_hz: int, n_fft: int, n_bands: int) -> Tensor:
    """Triangles on the mel scale of the Auditory Toolbox, of equal area: (bands, n_fft // 2 + 1)"""
    corners = mel_to_hertz(np.linspace(0, MEL_TOP, n_bands + 2))
    bins = np.arange(n_fft // 2 + 1) * rate_hz / n_fft
    rise = (bins - corners[:-2, None]) / np.diff(corners)[:-1, None]
    fall = (corners[2:, None] - bins) / np.diff(corners)[1:, None]
    triangles = np.maximum(0, np.minimum(rise, fall)).astype(np.float32)
    height = 2 / (corners[2:] - corners[:-2])
    # Rounded before and after the scaling, as in the filters that the models were trained with.
    return torch.from_numpy((triangles * height[:, None]).astype(np.float32))


@lru_cache(maxsize=1)
def kaldi_filters() -> Tensor:
    """Triangles on Kaldi's mel scale, 20 Hz to 8 kHz, of equal height: (80, 257)"""
    low, high = (1127 * math.log(1 + hz / 700) for hz in (20, MEL_TOP_HZ))
    corners = low + torch.arange(82, device=HOST)[:, None] * ((high - low) / 81)
    left, middle, right = corners[:-2], corners[1:-1], corners[2:]
    bins = torch.arange(N_FBANK_FFT // 2, device=HOST) * (SPEECH_HZ / N_FBANK_FFT)
    mel = 1127 * (1 + bins / 700).log()
    triangles = torch.minimum((mel - left) / (middle - left), (right - mel) / (right - middle))
    return F.pad(triangles.clamp(min=0), (0, 1))  # nothing is heard at Nyquist


@lru_cache(maxsize=1)
def _povey_window() -> Tensor:
    return torch.hann_window(WINDOW, periodic=False, device=HOST) ** 0.85


def mel_to_hertz(mel: NDArray[np.float64]) -> NDArray[np.float64]:
    """Even up to 1 kHz (15 mel), even in the logarithm from there on."""
    return np.where(mel < 15, mel * 200 / 3, 1000 * np.exp((mel - 15) * math.log(6.4) / 27))


def _reflect(wave: Tensor, n_samples: int) -> Tensor:
    if wave.shape[0] <= n_samples:
        raise AudioError(_too_short(wave, n_samples + 1))
    return F.pad(wave[None], (n_samples, n_samples), mode="reflect")[0]


def _too_short(wave: Tensor, n_needed: int) -> str:
    return f"{wave.shape[0]} samples are too few, {n_needed} are the least: record more"


def _stft(wave: Tensor, n_fft: int, hop: int) -> Tensor:
    """(n_fft // 2 + 1, F), complex"""
    window = torch.hann_window(n_fft, device=wave.device)
    return torch.stft(wave, n_fft, hop, window=window, center=False, return_complex=True)
