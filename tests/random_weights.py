"""Random weights for tests, also for those that run in the upstream environment: torch alone."""

from __future__ import annotations

import torch
from torch import nn

SHARP = ("q_proj", "k_proj", "c_attn", "to_q", "to_k")  # so that attention is about something


@torch.no_grad()
def randomize(model: nn.Module, seed: int, sharpness: float = 2.0) -> None:
    """Every part matters, and the next token is neither certain nor a toss.

    The sharper the attention, the more a deep stack of random layers multiplies rounding: at 2 all
    that was said before counts, at 1 two ways of adding up still agree after 30 layers.
    """
    generator = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        draw = torch.randn(parameter.shape, generator=generator)
        if "norm" in name or "ln_" in name:
            draw = (1 if name.endswith("weight") else 0) + 0.1 * draw
        elif parameter.dim() < 2:
            draw = 0.1 * draw
        elif "emb" in name or "wpe" in name or "query" in name:
            draw = 0.5 * draw
        else:
            fan_in = parameter.shape[0 if ".c_" in name else 1]
            spread = sharpness if any(part in name for part in SHARP) else 1.0
            spread = 2.5 if name.startswith("speech_head") else spread
            draw = draw * spread / fan_in**0.5
        parameter.copy_(draw)
