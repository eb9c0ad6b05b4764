"""ECAPA-TDNN of SpeechBrain, trained on VoxCeleb: a recording -> a vector that tells who speaks.

Not the model's own encoder of voices, so that nobody judges their own work. Names are those of the
released tensors. Frames are decibels of 80 mel bands, less their mean; edges are mirrored.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nightingale.audio.mel import HOP, MEL_TOP_HZ, SPEECH_HZ, WINDOW

N_BANDS = 80
RANGE_DB = 80.0  # what lies further below the loudest is raised to that
N_SCALES = 8  # parts of the channels, each of which sees further than the one before
DILATIONS = (2, 3, 4)


@dataclass(frozen=True, slots=True)
class EcapaConfig:
    """The released size; tests use smaller ones."""

    n_channels: int = 1024
    n_pooled: int = 3072
    n_hidden: int = 128  # of gates and of attention
    d_embedding: int = 192


class Ecapa(nn.Module):
    """Inference only: means and spreads are those of training."""

    def __init__(self, config: EcapaConfig | None = None) -> None:
        super().__init__()
        config = config or EcapaConfig()
        n_channels, n_pooled = config.n_channels, config.n_pooled
        blocks = [_Block(n_channels, config.n_hidden, dilation) for dilation in DILATIONS]
        self.blocks = nn.ModuleList([_Layer(N_BANDS, n_channels, 5), *blocks])
        self.mfa = _Layer(len(blocks) * n_channels, n_pooled)
        self.asp = _Pool(n_pooled, config.n_hidden)
        self.asp_bn = _Norm(2 * n_pooled)
        self.fc = _Conv(2 * n_pooled, config.d_embedding)
        self.eval()

    @torch.inference_mode()
    def embed(self, wave: Tensor) -> Tensor:
        """(N,) at 16 kHz -> (192,)"""
        return self(decibels(wave).T[None])[0]

    def forward(self, x: Tensor) -> Tensor:
        """(B, 80, F) -> (B, 192)"""
        x = self.blocks[0](x - x.mean(dim=-1, keepdim=True))
        outputs = []
        for block in self.blocks[1:]:
            x = block(x)
            outputs.append(x)
        pooled = self.asp(self.mfa(torch.cat(outputs, dim=1)))
        return self.fc(self.asp_bn(pooled))[..., 0]


def decibels(wave: Tensor) -> Tensor:
    """(N,) at 16 kHz -> (1 + N // 160, 80)"""
    window = torch.hamming_window(WINDOW, device=wave.device)
    spectrum = torch.stft(
        wave, WINDOW, HOP, window=window, pad_mode="constant", return_complex=True
    )
    bands = spectrum.abs().pow(2).T @ filters().to(wave.device).T
    levels = 10 * bands.clamp(min=1e-10).log10()
    return levels.clamp(min=float(levels.max()) - RANGE_DB)


@lru_cache(maxsize=1)
def filters() -> Tensor:
    """Triangles of equal height, even to both sides in hertz: (80, 201)"""
    top = 2595 * math.log10(1 + MEL_TOP_HZ / 700)
    corners = 700 * (10 ** (torch.linspace(0, top, N_BANDS + 2) / 2595) - 1)
    reach = corners.diff()[:-1, None]  # to the left neighbour, and as far to the right
    bins = torch.linspace(0, SPEECH_HZ // 2, WINDOW // 2 + 1)
    return (1 - (bins - corners[1:-1, None]).abs() / reach).clamp(min=0)


class _Conv(nn.Module):
    """As many frames out as in; the edges are mirrored."""

    def __init__(self, n_in: int, n_out: int, kernel: int = 1, dilation: int = 1) -> None:
        super().__init__()
        self.conv = nn.Conv1d(n_in, n_out, kernel, dilation=dilation)
        self.reach = (kernel - 1) // 2 * dilation

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(F.pad(x, (self.reach, self.reach), mode="reflect"))


class _Norm(nn.Module):
    def __init__(self, n_channels: int) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(n_channels)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x)


class _Layer(nn.Module):
    def __init__(self, n_in: int, n_out: int, kernel: int = 1, dilation: int = 1) -> None:
        super().__init__()
        self.conv = _Conv(n_in, n_out, kernel, dilation)
        self.norm = _Norm(n_out)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(F.relu(self.conv(x)))


class _Block(nn.Module):
    def __init__(self, n_channels: int, n_hidden: int, dilation: int) -> None:
        super().__init__()
        self.tdnn1 = _Layer(n_channels, n_channels)
        self.res2net_block = _Scales(n_channels // N_SCALES, dilation)
        self.tdnn2 = _Layer(n_channels, n_channels)
        self.se_block = _Gate(n_channels, n_hidden)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.se_block(self.tdnn2(self.res2net_block(self.tdnn1(x))))


class _Scales(nn.Module):
    """The first part passes; every other one is convolved with what came of its neighbour."""

    def __init__(self, n_channels: int, dilation: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(
            _Layer(n_channels, n_channels, 3, dilation) for _ in range(N_SCALES - 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        first, *parts = x.chunk(N_SCALES, dim=1)
        outputs, before = [first], torch.zeros_like(first)
        for layer, part in zip(self.blocks, parts, strict=True):
            before = layer(part + before)
            outputs.append(before)
        return torch.cat(outputs, dim=1)


class _Gate(nn.Module):
    """Opens and closes channels by what the recording is like on the whole."""

    def __init__(self, n_channels: int, n_hidden: int) -> None:
        super().__init__()
        self.conv1 = _Conv(n_channels, n_hidden)
        self.conv2 = _Conv(n_hidden, n_channels)

    def forward(self, x: Tensor) -> Tensor:
        hidden = F.relu(self.conv1(x.mean(dim=-1, keepdim=True)))
        return x * torch.sigmoid(self.conv2(hidden))


class _Pool(nn.Module):
    """Mean and spread over time, every channel with an attention of its own."""

    def __init__(self, n_channels: int, n_hidden: int) -> None:
        super().__init__()
        self.tdnn = _Layer(3 * n_channels, n_hidden)
        self.conv = _Conv(n_hidden, n_channels)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, F) -> (B, 2 C, 1)"""
        even = torch.full_like(x, 1 / x.shape[-1])
        context = torch.cat((x, *(s.expand_as(x) for s in _statistics(x, even))), dim=1)
        attention = self.conv(torch.tanh(self.tdnn(context))).softmax(dim=-1)
        return torch.cat(_statistics(x, attention), dim=1)


def _statistics(x: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    """Weighted mean and standard deviation over time: (B, C, 1) each."""
    mean = (weights * x).sum(dim=-1, keepdim=True)
    variance = (weights * (x - mean).pow(2)).sum(dim=-1, keepdim=True)
    return mean, variance.clamp(min=1e-12).sqrt()
