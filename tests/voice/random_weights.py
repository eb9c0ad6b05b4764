"""Random weights for the encoders, also for the upstream environment: torch alone."""

from __future__ import annotations

import torch
from torch import nn


@torch.no_grad()
def randomize(model: nn.Module, seed: int) -> None:
    """Every part matters: norms near one, all else so that signals keep their size."""
    generator = torch.Generator().manual_seed(seed)
    for name, tensor in model.state_dict().items():
        if not tensor.is_floating_point() or name in ("_mel_filters", "window"):
            continue
        draw = torch.randn(tensor.shape, generator=generator)
        if name.endswith("running_var"):
            draw = 1 + draw.abs()
        elif tensor.dim() < 2 and name.endswith("weight"):
            draw = 1 + 0.1 * draw
        elif tensor.dim() < 2:
            draw = 0.1 * draw
        else:
            draw = 1.2 * draw / tensor[0].numel() ** 0.5
        tensor.copy_(draw)
