"""The vocoder's filter by compiled code, in bfloat16 or with products in 8 bits: the fast twin of
`Vocoder`.

Pitch and source, where a rounding would become a drift, stay as they are. Time comes before
channels here; what the blocks add to stays in fp32.
"""

from __future__ import annotations

import ctypes
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nightingale.backends.torch.vocoder.model import (
    EPSILON,
    LAST_SLOPE,
    SLOPE,
    ResidualBlock,
    Upsampling,
    Vocoder,
    sound,
)
from nightingale.backends.torch.vocoder.stft import N_CHANNELS, stft
from nightingale.nn.convolution import Convolution, Snake, between_zeros, whole
from nightingale.nn.deterministic import linear


class FastVocoder(Vocoder):
    """Mel frames -> samples, as `Vocoder`, nearly."""

    def __init__(self, slow: Vocoder, library: ctypes.CDLL) -> None:
        nn.Module.__init__(self)
        self.config = slow.config
        self.f0_predictor, self.m_source = slow.f0_predictor, slow.m_source
        self.entrance = _plain(slow.conv_pre, library)
        self.upsamples = nn.ModuleList(_Upsample(cast(Upsampling, up), library) for up in slow.ups)
        self.source_branches = nn.ModuleList(
            _SourceBranch(cast(nn.Conv1d, down), cast(ResidualBlock, block), library)
            for down, block in zip(slow.source_downs, slow.source_resblocks, strict=True)
        )
        self.blocks = nn.ModuleList(
            _Block(cast(ResidualBlock, block), library) for block in slow.resblocks
        )
        self.exit = _plain(slow.conv_post, library)

    @property
    def dtype(self) -> torch.dtype:
        return torch.bfloat16

    def synthesize(self, mel: Tensor, source: Tensor) -> Tensor:
        """(B, 80, M) and (B, M * 480) -> (B, M * 480)"""
        return torch.stack([self._shape(*row) for row in zip(mel, source, strict=True)])

    def _shape(self, mel: Tensor, source: Tensor) -> Tensor:
        excitation = stft(source[None])[0].T.contiguous()  # (M * 120 + 1, 18)
        entrance, exit_ = self.entrance, self.exit
        x = entrance(between_zeros(mel.T, entrance.reach, entrance.n_in))
        for stage in range(len(self.upsamples)):
            x = self._stage_of(stage, x, excitation)
        x = exit_(between_zeros(F.leaky_relu(x, LAST_SLOPE), exit_.reach, exit_.n_in))
        return sound(x[None, :, :N_CHANNELS].mT)[0]

    def _stage_of(self, stage: int, x: Tensor, excitation: Tensor) -> Tensor:
        x = self.upsamples[stage](F.leaky_relu(x, SLOPE))
        if stage == len(self.upsamples) - 1:
            x = torch.cat((x[1:2], x))  # centered frames are one more than the hops
        x += self.source_branches[stage](excitation)
        n = len(self.config.kernels)
        total, *rest = (block(x) for block in self.blocks[stage * n : (stage + 1) * n])
        for other in rest:
            total += other
        return total.div_(n)


class _Upsample(nn.Module):
    """A transposed convolution as a plain one: each phase of its outputs sees three frames."""

    def __init__(self, slow: Upsampling, library: ctypes.CDLL) -> None:
        super().__init__()
        n_in, n_out, kernel = slow.weight.shape
        self.factor, self._width = slow.factor, whole(n_out)
        cut = (kernel - self.factor) // 2
        weight = torch.zeros(self.factor, self._width, n_in, 3)
        for phase in range(self.factor):
            for tap, ahead in enumerate((1, 0, -1)):
                at = phase + cut + self.factor * ahead
                if 0 <= at < kernel:
                    weight[phase, :n_out, :, tap] = slow.weight[:, :, at].T
        bias = F.pad(_bias(slow), (0, self._width - n_out)).repeat(self.factor)
        self.conv = Convolution(weight.flatten(0, 1), bias, library=library)

    def forward(self, x: Tensor) -> Tensor:
        made = self.conv(between_zeros(x, self.conv.reach, self.conv.n_in))
        return made.view(len(x) * self.factor, self._width)


class _SourceBranch(nn.Module):
    """The spectrum of the source, at the rate of a stage, through its block."""

    def __init__(self, down: nn.Conv1d, block: ResidualBlock, library: ctypes.CDLL) -> None:
        super().__init__()
        n_out, _, kernel = down.weight.shape
        self._kernel, self._stride = kernel, down.stride[0]
        self._padding = int(down.padding[0])
        grown = F.pad(down.weight.detach(), (0, 0, 0, 0, 0, whole(n_out) - n_out))
        self.register_buffer("weight", grown.permute(0, 2, 1).flatten(1).contiguous())
        self.register_buffer("bias", F.pad(_bias(down), (0, whole(n_out) - n_out)))
        self.weight: Tensor
        self.bias: Tensor
        self.block = _Block(block, library)

    def forward(self, excitation: Tensor) -> Tensor:
        padded = F.pad(excitation, (0, 0, self._padding, self._padding))
        n = (len(padded) - self._kernel) // self._stride + 1
        width = padded.shape[1]
        windows = padded.as_strided((n, self._kernel * width), (self._stride * width, 1))
        return self.block(linear(windows, self.weight, self.bias))


class _Block(nn.Module):
    def __init__(self, slow: ResidualBlock, library: ctypes.CDLL) -> None:
        super().__init__()
        waves = zip(slow.activations1, slow.activations2, strict=True)
        convs = zip(slow.convs1, slow.convs2, strict=True)
        self.waves = nn.ModuleList(_wave(wave, library) for pair in waves for wave in pair)
        self.convs = nn.ModuleList(_plain(conv, library) for pair in convs for conv in pair)

    def forward(self, x: Tensor) -> Tensor:
        for at in range(0, len(self.convs), 2):
            first, second = (cast(Convolution, conv) for conv in self.convs[at : at + 2])
            h = first(self.waves[at](x, first.reach))
            x = second(self.waves[at + 1](h, second.reach), residual=x)
        return x


def _plain(slow: nn.Module, library: ctypes.CDLL) -> Convolution:
    conv = cast(nn.Conv1d, slow)
    return Convolution(conv.weight, _bias(conv), conv.dilation[0], library=library)


def _wave(slow: nn.Module, library: ctypes.CDLL) -> Snake:
    alpha = slow.alpha
    assert isinstance(alpha, Tensor)
    return Snake(alpha, EPSILON, library=library)


def _bias(layer: nn.Conv1d | nn.ConvTranspose1d) -> Tensor:
    assert layer.bias is not None
    return layer.bias.detach()
