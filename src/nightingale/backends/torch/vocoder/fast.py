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
    FrameSlice,
    ResidualBlock,
    Upsampling,
    Vocoder,
    VocoderConfig,
    excitation,
    sound,
)
from nightingale.backends.torch.vocoder.pieces import (
    Piece,
    PieceCaches,
    convolved,
    joined_for,
    zeros_around,
)
from nightingale.core import SAMPLES_PER_FRAME
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

    @property
    def _spectra_per_frame(self) -> int:
        return SAMPLES_PER_FRAME // self.config.hop

    def synthesize(self, mel: Tensor, source: Tensor) -> Tensor:
        """(B, 80, M) and (B, M * 480) -> (B, M * 480)"""
        at = FrameSlice(0, 0, mel.shape[2], is_last=True)
        rows = zip(mel, source, strict=True)
        return torch.stack([self.filter_slice(*row, at, ())[0] for row in rows])

    def filter_slice(
        self, mel: Tensor, source: Tensor, at: FrameSlice, caches: tuple[Piece, ...]
    ) -> tuple[Tensor, tuple[Piece, ...]]:
        """Each layer's input is cached: no frame is rendered twice, but those that are not certain
        yet."""
        self._check_source(mel, source)
        n_seen = caches[0].end if caches else 0  # by the first layer
        again = max(0, n_seen - 1 - at.first)  # the source's spectra reach into one frame more
        frames = Piece(mel[:, again:].T, at.first + again, at.first + mel.shape[1])
        layers = PieceCaches(caches, is_last=at.is_last)
        first_spectrum = frames.first * self._spectra_per_frame
        spectra = _spectra(source[again * SAMPLES_PER_FRAME :], first_spectrum, self.config)
        samples = self._shape(frames, spectra, at, layers)
        return samples, tuple(layers.kept)

    def _shape(self, mel: Piece, spectra: Piece, at: FrameSlice, caches: PieceCaches) -> Tensor:
        x = _convolve(self.entrance, mel, caches)
        for stage, (n_in, n_out) in enumerate(self._needed(at.end)):
            x = self._stage_of(stage, x.until(n_in), spectra, n_out, caches)
        per_frame = self._spectra_per_frame
        x = caches.join(_convolve(self.exit, x, caches, LAST_SLOPE), at.end * per_frame - 1)
        begin = max(0, at.begin * per_frame - 1)  # a sample is in the spectra around it
        parameters = x.between(begin, x.end)[None, :, : self.config.n_out]
        if self.config.head == "filter":
            spectra = caches.join(spectra, at.end * per_frame - 1)
        heard = spectra.between(begin, x.end)[None]
        samples = sound(parameters.mT, heard.mT, self.config)[0]
        skipped = at.begin * SAMPLES_PER_FRAME - begin * self.config.hop
        return samples[skipped:][: (at.end - at.begin) * SAMPLES_PER_FRAME]

    def _needed(self, n_frames: int) -> list[tuple[int, int]]:
        """How many positions of each stage's input, and behind its upsampling, so many frames of
        sound depend on."""
        n, needed = n_frames * self._spectra_per_frame + 2 + self.exit.reach // 2, []
        for stage in reversed(range(len(self.upsamples))):
            n += max(block.context for block in self._blocks(stage))
            needed.append((-(-n // self.config.stages[stage][0]) + 1, n))
            n = needed[-1][0]
        return needed[::-1]

    def _blocks(self, stage: int) -> list[_Block]:
        n = len(self.config.kernels)
        return [cast(_Block, self.blocks[stage * n + number]) for number in range(n)]

    def _stage_of(
        self, stage: int, x: Piece, spectra: Piece, n_needed: int, caches: PieceCaches
    ) -> Piece:
        x = self.upsamples[stage](x, caches)
        if stage == len(self.upsamples) - 1:  # centered frames are one more than the hops
            rows = x.x if x.first else torch.cat((x.x[1:2], x.x))
            n_final = x.n_final + 1 if x.n_final > 1 else 0  # the mirrored one is the second
            x = Piece(rows, x.first + 1 if x.first else 0, n_final)
        if self.source_branches:
            x = caches.add((x, self.source_branches[stage](spectra, n_needed, caches)))
        else:
            x = x.until(n_needed)
        total = caches.add([block(x, caches) for block in self._blocks(stage)])
        return Piece(total.x.div_(len(self.config.kernels)), total.first, total.n_final)


def _spectra(source: Tensor, first: int, config: VocoderConfig) -> Piece:
    """The excitation from spectrum number `first` on; those at its ends, two each, saw its mirror
    image."""
    made = excitation(source[None], config)[0].T
    n_cut = 2 if first else 0
    return Piece(made[n_cut:].contiguous(), first + n_cut, first + len(made) - 2)


def _convolve(
    conv: Convolution, piece: Piece, caches: PieceCaches, slope: float | None = None
) -> Piece:
    half = conv.reach // 2
    piece = joined_for(caches, piece, half)
    x = piece.x if slope is None else F.leaky_relu(piece.x, slope)
    n_zeros, n_before = zeros_around(piece, half)
    return convolved(piece, conv(between_zeros(x, n_zeros, conv.n_in, n_before)), half)


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

    def forward(self, piece: Piece, caches: PieceCaches) -> Piece:
        made, factor = _convolve(self.conv, piece, caches, SLOPE), self.factor
        return Piece(made.x.view(-1, self._width), made.first * factor, made.n_final * factor)


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

    def forward(self, excitation: Piece, n_needed: int, caches: PieceCaches) -> Piece:
        kernel, stride, padding = self._kernel, self._stride, self._padding
        first = -(-(excitation.first + padding) // stride) if excitation.first else 0
        n_before = 0 if first else padding
        x = excitation.between(first * stride - padding, excitation.end)
        padded = F.pad(x, (0, 0, n_before, padding))
        n, width = (len(padded) - kernel) // stride + 1, padded.shape[1]
        windows = padded.as_strided((n, kernel * width), (stride * width, 1))
        n_final = max(0, (excitation.n_final + padding - kernel) // stride + 1)
        down = Piece(linear(windows, self.weight, self.bias), first, n_final)
        return self.block(down.until(n_needed + self.block.context), caches)


class _Block(nn.Module):
    def __init__(self, slow: ResidualBlock, library: ctypes.CDLL) -> None:
        super().__init__()
        waves = zip(slow.activations1, slow.activations2, strict=True)
        convs = zip(slow.convs1, slow.convs2, strict=True)
        self.waves = nn.ModuleList(_wave(wave, library) for pair in waves for wave in pair)
        self.convs = nn.ModuleList(_plain(conv, library) for pair in convs for conv in pair)
        self._halves = [cast(Convolution, conv).reach // 2 for conv in self.convs]

    @property
    def context(self) -> int:
        """How far it looks to either side."""
        return sum(self._halves)

    def forward(self, x: Piece, caches: PieceCaches) -> Piece:
        for at in range(0, len(self.convs), 2):
            first, second = self._halves[at : at + 2]
            x = joined_for(caches, x, first, then=second)
            h = joined_for(caches, self._step(at, x), second)
            x = self._step(at + 1, h, residual=x.x)
        return x

    def _step(self, at: int, piece: Piece, residual: Tensor | None = None) -> Piece:
        conv, half = cast(Convolution, self.convs[at]), self._halves[at]
        waved = self.waves[at](piece.x, *zeros_around(piece, half))
        if residual is not None:  # both end alike
            residual = residual[len(residual) - (len(waved) - conv.reach) :]
        return convolved(piece, conv(waved, residual), half)


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
