"""A small vocoder with random weights that hums, hisses and neither dies nor shouts.

Torch alone, and upstream's names as well as ours: the parity script uses the weights too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from nightingale.backends.torch.vocoder.model import Vocoder

SMALL: dict[str, Any] = {"n_channels": 32, "n_f0_channels": 24}  # the released kernels, thinner
SMALL_FILTER: dict[str, Any] = {
    "n_channels": 64,
    "n_f0_channels": 24,
    "n_harmonics": 1,
    "stages": ((4, 8),),
    "kernels": (3, 7),
    "source_kernels": (),
    "dilations": (1, 3),
    "hop": 120,
    "head": "filter",
}


@torch.no_grad()
def randomize(model: nn.Module, seed: int) -> None:
    """Pitches between 0 and 400 Hz, some frames unvoiced; sound well inside its limits."""
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        draw = torch.randn(parameter.shape, generator=generator, dtype=torch.float32)
        if name.endswith("alpha"):
            draw = 0.6 + 0.3 * draw.abs()
        elif name.endswith("bias"):
            draw = 0.1 * draw
        elif name.endswith("original0"):  # lengths of weight-normed kernels
            draw = _gain(name) * (0.85 + 0.2 * draw.abs())
        elif not name.endswith("original1"):
            draw = _gain(name) * draw / draw[0].numel() ** 0.5
        parameter.copy_(draw)
    model.get_parameter("f0_predictor.classifier.weight").mul_(140)
    model.get_parameter("f0_predictor.classifier.bias").fill_(70)
    model.get_parameter("conv_post.bias")[:9].sub_(0.2)  # loudness of the bins


@torch.no_grad()
def quieten(model: nn.Module) -> None:
    """A filter's gains, so that pulses of dozens of overtones stay inside the limits."""
    gain, _, noise_gain = model.get_parameter("conv_post.bias").chunk(3)
    gain.sub_(5.0)
    noise_gain.sub_(3.0)


def _gain(name: str) -> float:
    if name.startswith(("ups", "m_source")):
        return 2.0
    return 0.5 if "resblocks" in name or name.startswith("conv_post") else 1.2


def small_mel(seed: int = 0, n_frames: int = 60) -> Tensor:
    """(80, M), gliding from frame to frame as speech does."""
    generator = torch.Generator().manual_seed(3000 + seed)
    draw = torch.randn(80, n_frames + 4, generator=generator)
    return draw.unfold(1, 5, 1).mean(-1) * 2 - 1


def small_vocoder(seed: int = 0, head: str = "spectrum") -> Vocoder:
    """Ours; imported here so that the upstream environment can use the rest."""
    from nightingale.backends.torch.vocoder.model import Vocoder, VocoderConfig

    sizes = SMALL if head == "spectrum" else SMALL_FILTER
    model = Vocoder(VocoderConfig(**sizes)).eval().requires_grad_(False)
    randomize(model, seed)
    if head == "filter":
        quieten(model)
    return model
