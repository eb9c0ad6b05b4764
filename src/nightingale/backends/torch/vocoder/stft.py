"""The short Fourier transform of the vocoder: 16 points, a hop of 4, periodic Hann window.

At this size a table is faster than an FFT: both directions are one small matrix product. Frames are
centered, so n samples make n / 4 + 1 of them; beyond its ends the signal is its own mirror image.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from nightingale.nn.device import HOST

N_FFT = 16
HOP = 4
N_BINS = N_FFT // 2 + 1
N_CHANNELS = 2 * N_BINS  # real parts, then imaginary parts


def stft(samples: Tensor) -> Tensor:
    """(B, n) -> (B, 18, n / 4 + 1)"""
    cosine, sine, window = _tables()
    analysis = _like(samples, torch.cat((cosine, -sine)) * window)  # (18, 16)
    mirrored = F.pad(samples[:, None], (N_FFT // 2, N_FFT // 2), mode="reflect")[:, 0]
    return (mirrored.unfold(1, N_FFT, HOP) @ analysis.T).transpose(1, 2)


def istft(spectrum: Tensor) -> Tensor:
    """(B, 18, n / 4 + 1) -> (B, n)"""
    cosine, sine, window = _tables()
    # Every bin but the first and the last stands for its conjugate twin as well.
    twins = torch.full((N_BINS, 1), 2.0, dtype=torch.float64, device=HOST)
    twins[0] = twins[-1] = 1.0
    synthesis = _like(spectrum, torch.cat((twins * cosine, -twins * sine)) * window / N_FFT)
    weight = _like(spectrum, window * window)[None, :, None].expand(1, -1, spectrum.shape[2])
    return _overlap_add(synthesis.T @ spectrum) / _overlap_add(weight)


def _overlap_add(frames: Tensor) -> Tensor:
    """(B, 16, T) -> (B, 4 * T - 4): from the middle of the first frame to that of the last."""
    n = N_FFT // HOP
    hops = frames.reshape(len(frames), n, HOP, -1)  # (B, 4, 4, T): a frame is four hops long
    summed = sum(F.pad(hops[:, k], (k, n - 1 - k)) for k in range(n))
    assert isinstance(summed, Tensor)
    return summed.transpose(1, 2).flatten(1)[:, N_FFT // 2 : -(N_FFT // 2)]


def _tables() -> tuple[Tensor, Tensor, Tensor]:
    """Cosines and sines of every bin, (9, 16) each, and the window, (16,)."""
    turn = 2 * math.pi / N_FFT
    point = torch.arange(N_FFT, dtype=torch.float64, device=HOST)
    angle = turn * (torch.outer(point[:N_BINS], point) % N_FFT)
    return angle.cos(), angle.sin(), 0.5 - 0.5 * torch.cos(turn * point)


def _like(x: Tensor, table: Tensor) -> Tensor:
    return table.to(x.dtype).to(x.device)
