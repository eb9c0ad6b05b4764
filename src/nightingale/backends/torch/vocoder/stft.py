"""The short Fourier transform of the vocoder: four hops long, periodic Hann window.

At these sizes (16 points and a hop of 4 in the released models) a table is faster than an FFT: both
directions are one small matrix product. Frames are centered, so n samples make n / hop + 1 of them;
beyond its ends the signal is its own mirror image.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor

from nightingale.nn.deterministic import linear
from nightingale.nn.device import HOST

HOPS = 4  # in a frame


def n_bins(hop: int) -> int:
    """Of a spectrum; it has twice as many channels: real parts, then imaginary parts."""
    return HOPS * hop // 2 + 1


def stft(samples: Tensor, hop: int) -> Tensor:
    """(B, n) -> (B, C, n / hop + 1)"""
    cosine, sine, window = _tables(hop)
    n_fft = HOPS * hop
    analysis = _like(samples, torch.cat((cosine, -sine)) * window)  # (C, n_fft)
    mirrored = F.pad(samples[:, None], (n_fft // 2, n_fft // 2), mode="reflect")[:, 0]
    return linear(mirrored.unfold(1, n_fft, hop), analysis).mT


def istft(spectrum: Tensor, hop: int) -> Tensor:
    """(B, C, n / hop + 1) -> (B, n)"""
    cosine, sine, window = _tables(hop)
    # Every bin but the first and the last stands for its conjugate twin as well.
    twins = torch.full((n_bins(hop), 1), 2.0, dtype=torch.float64, device=HOST)
    twins[0] = twins[-1] = 1.0
    synthesis = _like(spectrum, torch.cat((twins * cosine, -twins * sine)) * window / (HOPS * hop))
    weight = _like(spectrum, window * window)[None, :, None].expand(1, -1, spectrum.shape[2])
    frames = linear(spectrum.mT, synthesis.T).mT
    return _overlap_add(frames, hop) / _overlap_add(weight, hop)


def _overlap_add(frames: Tensor, hop: int) -> Tensor:
    """(B, n_fft, T) -> (B, hop * (T - 1)): from the middle of the first frame to that of the
    last."""
    hops = frames.reshape(len(frames), HOPS, hop, -1)
    summed = sum(F.pad(hops[:, k], (k, HOPS - 1 - k)) for k in range(HOPS))
    assert isinstance(summed, Tensor)
    half = HOPS * hop // 2
    return summed.transpose(1, 2).flatten(1)[:, half:-half]


def _tables(hop: int) -> tuple[Tensor, Tensor, Tensor]:
    """Cosines and sines of every bin, (n_bins, n_fft) each, and the window, (n_fft,)."""
    n_fft = HOPS * hop
    turn = 2 * math.pi / n_fft
    point = torch.arange(n_fft, dtype=torch.float64, device=HOST)
    angle = turn * (torch.outer(point[: n_bins(hop)], point) % n_fft)
    return angle.cos(), angle.sin(), 0.5 - 0.5 * torch.cos(turn * point)


def _like(x: Tensor, table: Tensor) -> Tensor:
    return table.to(x.dtype).to(x.device)
