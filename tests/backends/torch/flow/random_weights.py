"""Random weights for the flow, also for upstream's: by kind of layer, so torch alone is needed."""

from __future__ import annotations

import torch
from torch import nn

SHARP = ("linear_q", "linear_k", "to_q", "to_k")  # so that attention is about something


@torch.no_grad()
def randomize(model: nn.Module, seed: int) -> None:
    """Every tensor matters, biases and norms too, and no stage drowns the one before it."""
    generator = torch.Generator().manual_seed(seed)
    for path, module in model.named_modules():
        for name, parameter in module.named_parameters(recurse=False):
            draw = torch.randn(parameter.shape, generator=generator, dtype=torch.float32)
            if isinstance(module, nn.LayerNorm):
                draw = (1 if name == "weight" else 0) + 0.1 * draw
            elif isinstance(module, nn.Embedding) or name.startswith("pos_bias"):
                draw = 0.5 * draw
            elif name == "bias":
                draw = 0.1 * draw
            else:
                gain = 2.0 if path.endswith(SHARP) else 1.0
                draw = draw * gain / parameter[0].numel() ** 0.5
            parameter.copy_(draw)
