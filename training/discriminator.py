"""Multi-resolution spectrogram discriminator and the losses of adversarial vocoder training.

A vocoder that only minimises spectral distances learns the mean of all plausible waveforms, which
sounds blurred. An adversarial loss makes it choose one of them.
"""

from __future__ import annotations

import itertools

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.utils.parametrizations import weight_norm

RESOLUTIONS = (1024, 512, 256)
WIDTH = 16
MAGNITUDE_FLOOR = 1.5e-3  # below it is silence, whose logarithms would outweigh all that is heard
HAS_BF16: bool = torch.ops.mkldnn._is_mkldnn_bf16_supported()

FeatureMaps = list[list[Tensor]]  # of each resolution and layer; the last layer's is the score


class Discriminator(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.scales = nn.ModuleList(_SpectrogramDiscriminator(n_fft) for n_fft in RESOLUTIONS)

    def forward(self, samples: Tensor) -> FeatureMaps:
        """(B, N)"""
        return [scale(samples) for scale in self.scales]

    def frozen(self, samples: Tensor) -> FeatureMaps:
        """The same with constant parameters: gradients reach the samples only."""
        known = {name: tensor.detach() for name, tensor in self.named_parameters()}
        views: FeatureMaps = functional_call(self, known, (samples,))
        return views


class _SpectrogramDiscriminator(nn.Module):
    def __init__(self, n_fft: int) -> None:
        super().__init__()
        self.n_fft = n_fft
        widths = (1, WIDTH, WIDTH, WIDTH, WIDTH)
        self.layers = nn.ModuleList(
            weight_norm(nn.Conv2d(a, b, (9, 3), (2, 1), (4, 1)))
            for a, b in itertools.pairwise(widths)
        )
        self.score = weight_norm(nn.Conv2d(WIDTH, 1, 3, padding=1))

    def forward(self, samples: Tensor) -> list[Tensor]:
        window = torch.hann_window(self.n_fft)
        spectrum = torch.stft(
            samples, self.n_fft, self.n_fft // 4, window=window, return_complex=True
        )
        x = (
            torch.view_as_real(spectrum)
            .square()
            .sum(-1)
            .clamp(min=MAGNITUDE_FLOOR**2)
            .log()[:, None]
            / 4
            + 1
        )
        seen = []
        # Without instructions for it, bfloat16 is slower than float32.
        with torch.autocast("cpu", torch.bfloat16, enabled=HAS_BF16):
            for layer in self.layers:
                x = F.leaky_relu(layer(x), 0.1)
                seen.append(x.float())
            return [*seen, self.score(x).float()]


def discriminator_loss(spoken: FeatureMaps, made: FeatureMaps) -> Tensor:
    """Least squares: 1 for recorded speech, 0 for generated."""
    return torch.stack(
        [(1 - a[-1]).square().mean() + b[-1].square().mean() for a, b in _pairs(spoken, made)]
    ).mean()


def adversarial_loss(made: FeatureMaps) -> Tensor:
    """The generator's: how far its speech is from being scored as recorded."""
    return torch.stack([(1 - view[-1]).square().mean() for view in made]).mean()


def feature_matching_loss(spoken: FeatureMaps, made: FeatureMaps) -> Tensor:
    """The generator's: distance of the discriminator's feature maps."""
    return torch.stack(
        [
            F.l1_loss(there, here.detach())
            for a, b in _pairs(spoken, made)
            for here, there in zip(a[:-1], b[:-1], strict=True)
        ]
    ).mean()


def _pairs(spoken: FeatureMaps, made: FeatureMaps) -> list[tuple[list[Tensor], list[Tensor]]]:
    return list(zip(spoken, made, strict=True))
