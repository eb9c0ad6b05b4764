"""Who speaks, for T3: an LSTM listens through overlapping windows; their mean is the speaker.

Parameter names are those of the released `ve` files.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nightingale.audio.mel import SPEECH_HZ, speaker_mel

DEAD_TENSORS = ("similarity_weight", "similarity_bias")  # of use in training alone

WINDOW_FRAMES = 160
STEP_FRAMES = round(SPEECH_HZ / 1.3 / WINDOW_FRAMES)  # 77: about 1.3 windows a second
MIN_COVERAGE = 0.8  # a last window that is filled to this share still counts
BATCH = 32

TRIM_DB = 20.0
TRIM_FRAME, TRIM_HOP = 2048, 512


@dataclass(frozen=True, slots=True)
class SpeakerEncoderConfig:
    """The released size; tests use smaller ones."""

    n_bands: int = 40
    d_hidden: int = 256
    d_embedding: int = 256
    n_layers: int = 3


class SpeakerEncoder(nn.Module):
    """A recording -> a unit vector."""

    def __init__(self, config: SpeakerEncoderConfig | None = None) -> None:
        super().__init__()
        config = config or SpeakerEncoderConfig()
        self.lstm = nn.LSTM(config.n_bands, config.d_hidden, config.n_layers, batch_first=True)
        self.proj = nn.Linear(config.d_hidden, config.d_embedding)

    @torch.inference_mode()
    def embed(self, wave: Tensor) -> Tensor:
        """(N,) at 16 kHz -> (256,) of length 1; silence at both ends is left out."""
        windows = windows_of(speaker_mel(trim(wave)))
        parts = torch.cat([self(batch) for batch in windows.chunk(math.ceil(len(windows) / BATCH))])
        mean = parts.mean(dim=0)
        return mean / mean.norm()

    def forward(self, mel: Tensor) -> Tensor:
        """(B, 160, 40) -> (B, 256) of length 1"""
        _, (hidden, _) = self.lstm(mel)
        embedding = F.relu(self.proj(hidden[-1]))
        return embedding / embedding.norm(dim=1, keepdim=True)


def windows_of(mel: Tensor) -> Tensor:
    """(F, 40) -> (B, 160, 40), zeros behind the end where a window hangs over"""
    n_windows = count_windows(mel.shape[0])
    n_frames = WINDOW_FRAMES + STEP_FRAMES * (n_windows - 1)
    mel = F.pad(mel, (0, 0, 0, max(0, n_frames - mel.shape[0])))[:n_frames]
    return mel.unfold(0, WINDOW_FRAMES, STEP_FRAMES).transpose(1, 2).contiguous()


def count_windows(n_frames: int) -> int:
    """How many windows a recording of that many frames fills, the last one mostly; at least one."""
    n_whole, rest = divmod(max(n_frames - WINDOW_FRAMES + STEP_FRAMES, 0), STEP_FRAMES)
    has_last = (rest + WINDOW_FRAMES - STEP_FRAMES) / WINDOW_FRAMES >= MIN_COVERAGE
    return max(1, n_whole + has_last)


def trim(wave: Tensor) -> Tensor:
    """Leave out both ends as far as they are 20 dB quieter than the loudest frame."""
    padded = F.pad(wave, (TRIM_FRAME // 2, TRIM_FRAME // 2))
    power = padded.unfold(0, TRIM_FRAME, TRIM_HOP).square().mean(dim=1)
    level = 10 * power.clamp(min=1e-10).log10()
    loud = (level - level.max() > -TRIM_DB).nonzero()[:, 0]
    start, end = int(loud[0]) * TRIM_HOP, (int(loud[-1]) + 1) * TRIM_HOP
    return wave[start:end]
