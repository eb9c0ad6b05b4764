"""The S3 speech tokenizer, version 2: a wave at 16 kHz becomes 25 tokens a second.

Parameter names are those of the released files, behind `tokenizer.` there. The order of the
arithmetic is upstream's too: a token is a rounding, and a last digit can turn it over.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nightingale.audio.mel import token_log_mel
from nightingale.errors import AudioError
from nightingale.nn.device import HOST

PREFIX = "tokenizer."
DEAD_TENSORS = ("_mel_filters", "window")  # some files have them; both are computed

FRAMES_PER_TOKEN = 4  # of the 100 frames a second that are read
MAX_FRAMES = 3000  # 30 s, the longest that was trained on
N_DIGITS = 8  # of a token, in base 3
MEMORY = 31  # tokens that the convolution beside each attention sees
ROPE_THETA = 10_000.0
NORM_EPS = 1e-5


@dataclass(frozen=True, slots=True)
class SpeechTokenizerConfig:
    """The released size; tests use smaller ones. Heads are always 64 wide."""

    n_layers: int = 6
    d_model: int = 1280
    n_bands: int = 128

    @property
    def n_heads(self) -> int:
        return self.d_model // 64


class SpeechTokenizer(nn.Module):
    """A recording -> the tokens that T3 would have made for it."""

    def __init__(self, config: SpeechTokenizerConfig | None = None) -> None:
        super().__init__()
        config = config or SpeechTokenizerConfig()
        self.encoder = _Encoder(config)
        self.quantizer = _Quantizer(config.d_model)

    @torch.inference_mode()
    def encode(self, wave: Tensor, max_tokens: int | None = None) -> Tensor:
        """(N,) at 16 kHz -> (P,), int64; `max_tokens` cuts after the loudest frame is known."""
        mel = token_log_mel(wave)  # (128, F)
        if max_tokens is not None:
            mel = mel[:, : max_tokens * FRAMES_PER_TOKEN]
        if mel.shape[1] > MAX_FRAMES:
            raise AudioError(
                f"the recording has {mel.shape[1] / 100:g} s, but the speech tokenizer reads up "
                f"to {MAX_FRAMES / 100:g} s: cut it"
            )
        return tokens_of(self.quantizer(self.encoder(mel[None]))[0])


def tokens_of(levels: Tensor) -> Tensor:
    """(P, 8) between -1 and 1 -> (P,) on the host: digits of base 3, the lowest first."""
    # On the host: a device that takes powers of integers in floating point may round them.
    digits = levels.round().to(HOST).long() + 1
    return (digits * 3 ** torch.arange(N_DIGITS, device=HOST)).sum(-1)


class _Encoder(nn.Module):
    def __init__(self, config: SpeechTokenizerConfig) -> None:
        super().__init__()
        width = config.d_model
        self.conv1 = nn.Conv1d(config.n_bands, width, 3, stride=2, padding=1)
        self.conv2 = nn.Conv1d(width, width, 3, stride=2, padding=1)
        self.blocks = nn.ModuleList(_Block(width, config.n_heads) for _ in range(config.n_layers))

    def forward(self, mel: Tensor) -> Tensor:
        """(1, 128, F) -> (1, P, D)"""
        x = F.gelu(self.conv2(F.gelu(self.conv1(mel)))).transpose(1, 2)
        rotation = tuple(table.to(x) for table in rotary_tables(x.shape[1]))
        for block in self.blocks:
            x = block(x, rotation)
        return x


class _Block(nn.Module):
    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        self.attn = _Attention(d_model, n_heads)
        self.attn_ln = nn.LayerNorm(d_model, NORM_EPS)
        self.mlp = nn.Sequential(
            nn.Linear(d_model, 4 * d_model), nn.GELU(), nn.Linear(4 * d_model, d_model)
        )
        self.mlp_ln = nn.LayerNorm(d_model, NORM_EPS)

    def forward(self, x: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
        x = x + self.attn(self.attn_ln(x), rotation)
        return x + self.mlp(self.mlp_ln(x))


class _Attention(nn.Module):
    """Attention, and beside it a convolution over the values that remembers the neighbourhood."""

    def __init__(self, d_model: int, n_heads: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.query = nn.Linear(d_model, d_model)
        self.key = nn.Linear(d_model, d_model, bias=False)
        self.value = nn.Linear(d_model, d_model)
        self.out = nn.Linear(d_model, d_model)
        self.fsmn_block = nn.Conv1d(
            d_model, d_model, MEMORY, padding=MEMORY // 2, groups=d_model, bias=False
        )

    def forward(self, x: Tensor, rotation: tuple[Tensor, Tensor]) -> Tensor:
        values = self.value(x)  # (1, P, D)
        memory = self.fsmn_block(values.transpose(1, 2)).transpose(1, 2) + values
        queries, keys = (
            rotate(part.unflatten(2, (self.n_heads, -1)), *rotation)  # (1, P, H, 64)
            for part in (self.query(x), self.key(x))
        )
        scale = queries.shape[-1] ** -0.25
        weights = (queries.transpose(1, 2) * scale) @ (keys.permute(0, 2, 3, 1) * scale)
        seen = weights.softmax(-1) @ values.unflatten(2, (self.n_heads, -1)).transpose(1, 2)
        return self.out(seen.transpose(1, 2).flatten(2)) + memory


class _Quantizer(nn.Module):
    def __init__(self, d_model: int) -> None:
        super().__init__()
        self._codebook = _Codebook(d_model)

    def forward(self, x: Tensor) -> Tensor:
        return self._codebook(x)


class _Codebook(nn.Module):
    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.project_down = nn.Linear(d_model, N_DIGITS)

    def forward(self, x: Tensor) -> Tensor:
        """(1, P, D) -> (1, P, 8), each strictly between -1 and 1"""
        return self.project_down(x).tanh() * 0.9990000128746033


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Turn each pair (i, i + 32) of (1, P, H, 64) by its position's angle."""
    left, right = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-right, left), dim=-1) * sin


def rotary_tables(n_positions: int) -> tuple[Tensor, Tensor]:
    """Cosines and sines, (P, 1, 64) each."""
    frequency = 1.0 / ROPE_THETA ** (torch.arange(0, 64, 2, device=HOST).float() / 64)
    angle = torch.outer(torch.arange(n_positions, device=HOST), frequency).repeat(1, 2)[:, None]
    turn = torch.polar(torch.ones_like(angle), angle)  # not cos(): its last digit is another
    return turn.real, turn.imag
