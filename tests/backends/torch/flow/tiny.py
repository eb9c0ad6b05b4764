"""Small flows with random weights, and voices and tokens for them."""

from __future__ import annotations

import torch
from torch import Tensor

from nightingale.backends.torch.flow.encoder import EncoderConfig
from nightingale.backends.torch.flow.estimator import EstimatorConfig
from nightingale.backends.torch.flow.model import Decoder, Flow, FlowConfig
from nightingale.core import FlowPrompt
from tests.backends.torch.flow.random_weights import randomize


def tiny_config(decoder: Decoder) -> FlowConfig:
    """Sizes that differ from each other, as far as upstream can follow."""
    return FlowConfig(
        EncoderConfig(d_model=48, n_heads=4, d_ffn=80, n_layers=3, n_up_layers=2),
        EstimatorConfig(
            meanflow=decoder == "meanflow", d_model=32, n_heads=3, d_head=16, d_ffn=128, d_time=128,
            n_mid_blocks=3, n_transformers=2,
        ),
    )  # fmt: skip


def tiny_flow(decoder: Decoder = "standard", seed: int = 0) -> Flow:
    flow = Flow(tiny_config(decoder)).eval().requires_grad_(False)
    randomize(flow, seed)
    return flow


def tiny_prompt(seed: int = 0, n_tokens: int = 12, *, odd: bool = False) -> FlowPrompt:
    generator = torch.Generator().manual_seed(1000 + seed)
    tokens = torch.randint(0, 6561, (n_tokens,), generator=generator)
    mel = 2 * torch.randn(2 * n_tokens + odd, 80, generator=generator) - 4  # as loud as speech
    xvector = 3 * torch.randn(192, generator=generator)
    return FlowPrompt(tokens.numpy(), mel.numpy(), xvector.numpy())


def tiny_tokens(seed: int = 0, n_tokens: int = 9) -> Tensor:
    generator = torch.Generator().manual_seed(2000 + seed)
    return torch.randint(0, 6561, (n_tokens,), generator=generator)
