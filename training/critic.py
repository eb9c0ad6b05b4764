"""Tells made speech from spoken, by spectra of several resolutions: the vocoder's second teacher.

What only minimises distances of spectra says the mean of all that might have been said, and that is
a blur. Whoever must not be distinguished has to choose.
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
HEARD = 1.5e-3  # magnitudes below it are silence: their logarithms would outweigh all that is heard
HAS_BF16: bool = torch.ops.mkldnn._is_mkldnn_bf16_supported()

Views = list[list[Tensor]]  # of each resolution what each layer saw; the last is the verdict


class Critic(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.looks = nn.ModuleList(_Look(n_fft) for n_fft in RESOLUTIONS)

    def forward(self, samples: Tensor) -> Views:
        """(B, N)"""
        return [look(samples) for look in self.looks]

    def frozen(self, samples: Tensor) -> Views:
        """The same, but nothing is learned from it."""
        known = {name: tensor.detach() for name, tensor in self.named_parameters()}
        views: Views = functional_call(self, known, (samples,))
        return views


class _Look(nn.Module):
    def __init__(self, n_fft: int) -> None:
        super().__init__()
        self.n_fft = n_fft
        widths = (1, WIDTH, WIDTH, WIDTH, WIDTH)
        self.layers = nn.ModuleList(
            weight_norm(nn.Conv2d(a, b, (9, 3), (2, 1), (4, 1)))
            for a, b in itertools.pairwise(widths)
        )
        self.verdict = weight_norm(nn.Conv2d(WIDTH, 1, 3, padding=1))

    def forward(self, samples: Tensor) -> list[Tensor]:
        window = torch.hann_window(self.n_fft)
        spectrum = torch.stft(
            samples, self.n_fft, self.n_fft // 4, window=window, return_complex=True
        )
        x = torch.view_as_real(spectrum).square().sum(-1).clamp(min=HEARD**2).log()[:, None] / 4 + 1
        seen = []
        # Without instructions for it, bfloat16 is slower than float32.
        with torch.autocast("cpu", torch.bfloat16, enabled=HAS_BF16):
            for layer in self.layers:
                x = F.leaky_relu(layer(x), 0.1)
                seen.append(x.float())
            return [*seen, self.verdict(x).float()]


def lesson(spoken: Views, made: Views) -> Tensor:
    """For the critic: one for what was spoken, zero for what was made."""
    return torch.stack(
        [(1 - a[-1]).square().mean() + b[-1].square().mean() for a, b in _pairs(spoken, made)]
    ).mean()


def reproach(made: Views) -> Tensor:
    """For the maker: how far it is from being taken for real."""
    return torch.stack([(1 - view[-1]).square().mean() for view in made]).mean()


def feature_matching_loss(spoken: Views, made: Views) -> Tensor:
    """For the maker: how differently the critic's layers see both."""
    return torch.stack(
        [
            F.l1_loss(there, here.detach())
            for a, b in _pairs(spoken, made)
            for here, there in zip(a[:-1], b[:-1], strict=True)
        ]
    ).mean()


def _pairs(spoken: Views, made: Views) -> list[tuple[list[Tensor], list[Tensor]]]:
    return list(zip(spoken, made, strict=True))
