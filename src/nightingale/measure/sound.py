"""Does it sound well? DistillMOS: a recording -> 1 (bad) to 5 (excellent), without its text.

It learned from people's ratings of damaged natural speech, so that differences between two builds
mean more than the number itself. Names are those of the released tensors. It sees 7.68 s at once:
shorter clips end in silence, longer ones are seen in overlapping pieces, at most a second apart.
"""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nightingale.audio.files import Wave, resample
from nightingale.audio.mel import SPEECH_HZ
from nightingale.measure.judges import DISTILLMOS, safetensors
from nightingale.weights.load import load_into

N_PIECE = 122_880  # samples
N_PIECE_STEP = SPEECH_HZ
N_FFT, HOP = 320, 160
N_FRAMES = N_PIECE // HOP // 2  # the last convolution takes every other one
PLANES = (2, 64, 64, 128, 256, 256, 256)
D_FEATURES = 1024  # 256 planes of 4 bands
D_MODEL, N_HEADS, N_LAYERS = 200, 8, 7


class SoundJudge:
    """Rates how a clip sounds."""

    def __init__(self, folder: Path) -> None:
        """`folder` is that of all judges."""
        with torch.device("meta"):
            self.network = DistillMos()
        load_into(self.network, safetensors(folder, DISTILLMOS), prefix="model.")

    @torch.inference_mode()
    def rate(self, samples: Wave, rate_hz: int) -> float:
        wave = torch.from_numpy(resample(samples, rate_hz, SPEECH_HZ))
        return 1 + 4 * float(self.network(pieces(wave)).mean())


def pieces(wave: Tensor) -> Tensor:
    """(N,) -> (B, 122880), each as loud as can be"""
    n_over = max(0, len(wave) - N_PIECE)
    wave = F.pad(wave, (0, max(0, N_PIECE - len(wave))))
    starts = np.linspace(0, n_over, math.ceil(n_over / N_PIECE_STEP) + 1).astype(int)
    cut = torch.stack([wave[start : start + N_PIECE] for start in starts])
    return cut / (cut.abs().amax(dim=1, keepdim=True) + 1e-8)


class DistillMos(nn.Module):
    """Inference only: means and spreads are those of training."""

    def __init__(self) -> None:
        super().__init__()
        self.cnn = _Front()
        self.transformer_pool_attn = _Rater()
        self.eval()

    def forward(self, wave: Tensor) -> Tensor:
        """(B, 122880) -> (B, 1), 0 to 1"""
        return torch.sigmoid(self.transformer_pool_attn(self.cnn(wave)))


class _Front(nn.Module):
    """Reads the spectrum, phase and all, as a picture and makes it lower by steps."""

    def __init__(self) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        last = len(PLANES) - 2
        for number, (n_in, n_out) in enumerate(pairwise(PLANES)):
            stride = (1 if number == 0 else 2, 2 if number == last else 1)  # frequency, time
            layers += [nn.Conv2d(n_in, n_out, 3, stride, padding=(0, 1)), nn.LeakyReLU(0.1)]
        self.cnn = nn.Sequential(*layers)

    def forward(self, wave: Tensor) -> Tensor:
        """(B, N) -> (B, 1024, 384)"""
        reach = (N_FFT - HOP) // 2
        padded = F.pad(wave, (reach, reach), mode="reflect")
        window = torch.hann_window(N_FFT, device=wave.device)
        spectrum = torch.stft(padded, N_FFT, HOP, window=window, center=False, return_complex=True)
        magnitude = spectrum.abs().clamp(min=1e-12)
        soft = torch.view_as_real(spectrum * magnitude**-0.7)  # the loud no longer drowns the rest
        return self.cnn(soft.permute(0, 3, 1, 2)).flatten(1, 2)


class _Rater(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm_input = nn.BatchNorm1d(D_FEATURES)
        self.transformer = _Encoder()
        self.norm_trans = nn.BatchNorm1d(D_MODEL)
        self.pool = _Pool()

    def forward(self, x: Tensor) -> Tensor:
        """(B, 1024, 384) -> (B, 1)"""
        x = self.transformer(self.norm_input(x))
        return self.pool(self.norm_trans(x.mT).mT)


class _Encoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(D_FEATURES)
        self.linear_proj = nn.Linear(D_FEATURES, D_MODEL)
        self.position_encoding = _Positions()
        layer = nn.TransformerEncoderLayer(
            D_MODEL, N_HEADS, dim_feedforward=2 * D_MODEL, dropout=0.0, batch_first=True
        )
        self.transformer_encoder = nn.TransformerEncoder(layer, N_LAYERS)

    def forward(self, x: Tensor) -> Tensor:
        """(B, 1024, 384) -> (B, 384, 200)"""
        x = self.linear_proj(self.norm(x).mT)
        return self.transformer_encoder(x + self.position_encoding.pe)


class _Positions(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("pe", torch.empty(1, N_FRAMES, D_MODEL))
        self.pe: Tensor


class _Pool(nn.Module):
    """One frame counts more than another."""

    def __init__(self) -> None:
        super().__init__()
        self.linear1 = nn.Linear(D_MODEL, 2 * D_MODEL)
        self.linear2 = nn.Linear(2 * D_MODEL, 1)
        self.linear3 = nn.Linear(D_MODEL, 1)

    def forward(self, x: Tensor) -> Tensor:
        """(B, F, D) -> (B, 1)"""
        weights = self.linear2(F.relu(self.linear1(x))).softmax(dim=1)  # (B, F, 1)
        return self.linear3((weights * x).sum(dim=1))
