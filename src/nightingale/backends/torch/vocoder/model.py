"""Vocoder: mel frames in, samples out, 480 a frame.

Pitch is read from the mel; a source excites at that pitch; a filter shapes the excitation. The
released filter (`head="spectrum"`) reads the source and makes spectra of speech; a small one
(`head="filter"`) says what to multiply the spectra of pulses and of noise by. All can be called on
a slice of an utterance with some frames of context, cut away afterwards: `F0_CONTEXT` and
`FILTER_CONTEXT` make the slice equal to the whole. Parameter names are those of the released files,
once weight norm is folded. Knows nothing of tokens, files or listeners.
"""

from __future__ import annotations

import functools
import itertools
import math
from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nightingale.backends.torch.vocoder.pieces import Piece
from nightingale.backends.torch.vocoder.source import Pulses, Source, SourceState, draw_noise
from nightingale.backends.torch.vocoder.stft import istft, n_bins, stft
from nightingale.core import SAMPLES_PER_FRAME
from nightingale.errors import RequestError
from nightingale.nn.deterministic import Conv
from nightingale.nn.sizes import n_bytes

# Frames on either side that a frame depends on. At the true ends of an utterance there are none.
F0_CONTEXT = 5
FILTER_CONTEXT = 15  # the mel reaches 13.2 frames far, the source 14.3

SLOPE = 0.1  # of the leaky units, but for the last one
LAST_SLOPE = 0.01
MAX_MAGNITUDE = 100.0
LIMIT = 0.99  # of the samples
EPSILON = 1e-9


@dataclass(frozen=True, slots=True)
class VocoderConfig:
    """The sizes of a vocoder; the released ones by default."""

    n_mels: int = 80
    n_channels: int = 512  # halved by each stage
    n_f0_channels: int = 512
    n_harmonics: int = 9  # the fundamental counts
    stages: tuple[tuple[int, int], ...] = ((8, 16), (5, 11), (3, 7))  # upsampling factor, kernel
    kernels: tuple[int, ...] = (3, 7, 11)  # of the blocks of a stage, whose mean is taken
    source_kernels: tuple[int, ...] = (7, 7, 11)  # of the source's block in each stage
    dilations: tuple[int, ...] = (1, 3, 5)
    hop: int = 4  # samples between the spectra that it reads and makes
    head: Literal["spectrum", "filter"] = "spectrum"  # what the last layer says

    def __post_init__(self) -> None:
        assert self.hop * math.prod(factor for factor, _ in self.stages) == SAMPLES_PER_FRAME
        assert len(self.source_kernels) == (len(self.stages) if self.head == "spectrum" else 0)
        assert self.head == "spectrum" or self.n_harmonics == 1  # one noise, and pulses beside it

    @property
    def n_out(self) -> int:
        """Channels of the last layer."""
        return n_bins(self.hop) * (2 if self.head == "spectrum" else 3)

    def source_shape(self, n_frames: int) -> tuple[int, ...]:
        """Of the source of so many frames; a filter's has pulses and noise side by side."""
        n_samples = SAMPLES_PER_FRAME * n_frames
        return (n_samples,) if self.head == "spectrum" else (n_samples, 2)


@dataclass(frozen=True, slots=True)
class FrameSlice:
    """Frames of an utterance: given are those from number `first` on, heard `begin` to `end`."""

    first: int
    begin: int
    end: int
    is_last: bool  # those given reach to the utterance's end


class Vocoder(nn.Module):
    """Mel frames -> samples. Holds weights and nothing of any request."""

    def __init__(self, config: VocoderConfig) -> None:
        super().__init__()
        self.config = config
        width, n_stages = config.n_channels, len(config.stages)
        widths = [width >> (stage + 1) for stage in range(n_stages)]
        self.f0_predictor = _F0Predictor(config.n_mels, config.n_f0_channels)
        self.m_source = Source(config.n_harmonics) if config.head == "spectrum" else Pulses()
        self.conv_pre = Conv(config.n_mels, width, 7, padding=3)
        self.ups = nn.ModuleList(
            Upsampling(out, kernel, factor)
            for out, (factor, kernel) in zip(widths, config.stages, strict=True)
        )
        self.source_downs = nn.ModuleList(
            _downsampling(
                2 * n_bins(config.hop),
                out,
                math.prod(factor for factor, _ in config.stages[stage + 1 :]),
            )
            for stage, (out, _) in enumerate(zip(widths, config.source_kernels, strict=False))
        )
        self.source_resblocks = nn.ModuleList(
            ResidualBlock(out, kernel, config.dilations)
            for out, kernel in zip(widths, config.source_kernels, strict=False)
        )
        self.resblocks = nn.ModuleList(
            ResidualBlock(out, kernel, config.dilations)
            for out in widths
            for kernel in config.kernels
        )
        self.conv_post = Conv(widths[-1], config.n_out, 7, padding=3)

    @property
    def dtype(self) -> torch.dtype:
        """Of most products."""
        return self.conv_pre.weight.dtype

    @property
    def weight_bytes(self) -> int:
        return n_bytes(self)

    @torch.inference_mode()
    def vocode(self, mel: Tensor, seed: int) -> Tensor:
        """The samples of a whole utterance, (80, M) -> (M * 480,)."""
        config, n_frames = self.config, mel.shape[-1]
        state = SourceState.start(seed, config.n_harmonics)
        noise = draw_noise(seed, 0, n_frames, config.n_harmonics, SAMPLES_PER_FRAME)
        source, _ = self.source(self.f0(mel), state, noise)
        return self.filter(mel, source)

    def f0(self, mel: Tensor) -> Tensor:
        """The pitch of each frame in Hz, (80, M) -> (M,); below 10 it counts as unvoiced."""
        self._check(mel)
        return self.f0_predictor(mel[None])[0]

    def source(self, f0: Tensor, state: SourceState, noise: Tensor) -> tuple[Tensor, SourceState]:
        """The excitation of the frames behind `state`, (M,) -> (M * 480,), and the state after.

        Of a filter's source, (M * 480, 2): pulses and noise."""
        return self.m_source(f0, state, noise.to(f0))

    def filter(self, mel: Tensor, source: Tensor) -> Tensor:
        """The sound of a source in the shape of a mel, (80, M) and (M * 480,) -> (M * 480,)."""
        self._check_source(mel, source)
        return self.synthesize(mel[None], source[None])[0]

    def filter_slice(
        self,
        mel: Tensor,
        source: Tensor,
        at: FrameSlice,
        caches: tuple[Piece, ...],  # noqa: ARG002
    ) -> tuple[Tensor, tuple[Piece, ...]]:
        """The sound of frames `at.begin` to `at.end`, and what is cached for the next slice.

        Here nothing is: all given frames are rendered, those for context once more.
        """
        samples = self.filter(mel, source)
        begin, end = (SAMPLES_PER_FRAME * (number - at.first) for number in (at.begin, at.end))
        return samples[begin:end], ()

    def synthesize(self, mel: Tensor, source: Tensor) -> Tensor:
        """The same for several at once, (B, 80, M) and (B, M * 480) -> (B, M * 480)."""
        spectra = excitation(source, self.config)  # (B, C, M * 480 / hop + 1)
        x = self.conv_pre(mel)  # (B, D, M)
        for stage in range(len(self.ups)):
            x = self._stage(stage, x, spectra)
        return sound(self.conv_post(F.leaky_relu(x, LAST_SLOPE)), spectra, self.config)

    def _stage(self, stage: int, x: Tensor, spectra: Tensor) -> Tensor:
        x = self.ups[stage](F.leaky_relu(x, SLOPE))
        if stage == len(self.ups) - 1:
            x = F.pad(x, (1, 0), mode="reflect")  # centered frames are one more than the hops
        if self.source_downs:
            x = x + self.source_resblocks[stage](self.source_downs[stage](spectra))
        n = len(self.config.kernels)
        blocks = self.resblocks[stage * n : (stage + 1) * n]
        return functools.reduce(Tensor.add_, (block(x) for block in blocks)).div_(n)

    def _check(self, mel: Tensor) -> None:
        if mel.dim() != 2 or mel.shape[0] != self.config.n_mels or not mel.shape[1]:
            raise RequestError(
                f"the mel is {list(mel.shape)}, but must be [{self.config.n_mels}, frames] with "
                "at least one frame"
            )

    def _check_source(self, mel: Tensor, source: Tensor) -> None:
        self._check(mel)
        needed = self.config.source_shape(mel.shape[1])
        if source.shape != needed:
            raise RequestError(
                f"the source is {list(source.shape)}, but {mel.shape[1]} frames of mel need "
                f"{list(needed)}: cut both at the same frames"
            )


def excitation(source: Tensor, config: VocoderConfig) -> Tensor:
    """(B, N) -> (B, C, N / hop + 1); (B, N, 2) -> (B, 2 C, N / hop + 1): pulses, then noise"""
    if config.head == "spectrum":
        return stft(source, config.hop)
    pulses, noise = source.unbind(2)
    return torch.cat((stft(pulses, config.hop), stft(noise, config.hop)), dim=1)


def sound(x: Tensor, spectra: Tensor, config: VocoderConfig) -> Tensor:
    """What the last layer says of each spectrum, (B, D, T) -> (B, hop * (T - 1)); `spectra` are
    those of the source."""
    if config.head == "spectrum":
        magnitude, phase = x.chunk(2, dim=1)
        magnitude, phase = magnitude.exp().clamp(max=MAX_MAGNITUDE), phase.sin()
        spectrum = torch.cat((magnitude * phase.cos(), magnitude * phase.sin()), dim=1)
    else:
        spectrum = filtered(x, spectra)
    return istft(spectrum, config.hop).clamp(-LIMIT, LIMIT)


def filtered(x: Tensor, spectra: Tensor) -> Tensor:
    """The spectra of pulses and noise times what `x` says, summed: gain and phase of each bin for
    the pulses, a gain for the noise."""
    gain, phase, noise_gain = x.chunk(3, dim=1)
    real, imaginary, noise_real, noise_imaginary = spectra.chunk(4, dim=1)
    gain = gain.exp().clamp(max=MAX_MAGNITUDE)
    noise_gain = noise_gain.exp().clamp(max=MAX_MAGNITUDE)
    a, b = gain * phase.cos(), gain * phase.sin()
    return torch.cat(
        (
            real * a - imaginary * b + noise_real * noise_gain,
            real * b + imaginary * a + noise_imaginary * noise_gain,
        ),
        dim=1,
    )


class _F0Predictor(nn.Module):
    def __init__(self, n_mels: int, n_channels: int) -> None:
        super().__init__()
        widths = [n_mels] + [n_channels] * 5
        layers: list[nn.Module] = []
        for before, after in itertools.pairwise(widths):
            layers += [Conv(before, after, 3, padding=1), nn.ELU()]
        self.condnet = nn.Sequential(*layers)
        self.classifier = nn.Linear(n_channels, 1)

    def forward(self, mel: Tensor) -> Tensor:
        weighed = self.condnet(mel) * self.classifier.weight[0, :, None]  # (1, D, M)
        return (weighed.sum(1) + self.classifier.bias).abs()


class ResidualBlock(nn.Module):
    """Convolutions that look ever further, each between two waves, each added to what there was."""

    def __init__(self, n_channels: int, kernel: int, dilations: tuple[int, ...]) -> None:
        super().__init__()
        self.convs1 = nn.ModuleList(
            Conv(n_channels, n_channels, kernel, dilation=wide, padding=kernel // 2 * wide)
            for wide in dilations
        )
        self.convs2 = nn.ModuleList(
            Conv(n_channels, n_channels, kernel, padding=kernel // 2) for _ in dilations
        )
        self.activations1 = nn.ModuleList(_Snake(n_channels) for _ in dilations)
        self.activations2 = nn.ModuleList(_Snake(n_channels) for _ in dilations)

    def forward(self, x: Tensor) -> Tensor:
        steps = zip(self.activations1, self.convs1, self.activations2, self.convs2, strict=True)
        for wave1, conv1, wave2, conv2 in steps:
            x = conv2(wave2(conv1(wave1(x)))).add_(x)
        return x


class _Snake(nn.Module):
    """x + sin(a x) ** 2 / a, with a learned pace for each channel."""

    def __init__(self, n_channels: int) -> None:
        super().__init__()
        self.alpha = nn.Parameter(torch.ones(n_channels))

    def forward(self, x: Tensor) -> Tensor:
        pace = self.alpha[:, None]
        # In place: fresh memory for every step costs as much as the sine.
        return (x * pace).sin_().square_().mul_(1 / (pace + EPSILON)).add_(x)


class Upsampling(nn.ConvTranspose1d):
    def __init__(self, n_channels: int, kernel: int, factor: int) -> None:
        super().__init__(2 * n_channels, n_channels, kernel, factor)
        self.factor = factor

    # Written out, as the predictor's last sum is: the library's tell how many threads there are.
    def forward(self, x: Tensor, output_size: list[int] | None = None) -> Tensor:  # noqa: ARG002
        assert self.bias is not None
        kernel = self.weight.shape[2]
        cut = (kernel - self.factor) // 2  # on either side
        n = (x.shape[2] - 1) * self.factor + kernel - 2 * cut
        columns = self.weight.flatten(1).T @ x
        summed = F.fold(columns, (1, n), (1, kernel), padding=(0, cut), stride=(1, self.factor))
        return summed[:, :, 0] + self.bias[:, None]


def _downsampling(n_in: int, n_channels: int, factor: int) -> Conv:
    """Brings the source's spectrum to the rate of a stage."""
    if factor == 1:
        return Conv(n_in, n_channels, 1)
    return Conv(n_in, n_channels, 2 * factor, factor, padding=factor // 2)


def fold_weight_norm(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Turn length and direction of each weight-normed convolution into its plain weight."""
    length, direction = (f".parametrizations.weight.original{n}" for n in (0, 1))
    folded = dict(tensors)
    for name in tensors:
        stem = name.removesuffix(length)
        if stem != name and stem + direction in tensors:
            g, v = folded.pop(name), folded.pop(stem + direction)
            folded[stem + ".weight"] = torch._weight_norm(v, g, 0)
    return folded


def fade_in(samples: Tensor, first: int = 0) -> Tensor:
    """Open an utterance: 20 ms of silence, then 20 ms of rising; `first` is where samples start."""
    n = SAMPLES_PER_FRAME
    rise = (1 - torch.linspace(0, math.pi, n, dtype=samples.dtype, device=samples.device).cos()) / 2
    ramp = torch.cat((torch.zeros_like(rise), rise))[first : first + len(samples)]
    return torch.cat((samples[: len(ramp)] * ramp, samples[len(ramp) :]))
