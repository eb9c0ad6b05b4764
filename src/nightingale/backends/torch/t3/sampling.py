"""Logits -> one token: pure functions on the device, applied in upstream's order.

The order is not the same for the two backbones: English and Multilingual penalize repetition
first, Turbo and Nano last, when unlikely tokens are cut off. Knows nothing of how logits are made.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from nightingale.core import Options

Sampler = Callable[
    [Tensor, Tensor, Tensor], Tensor
]  # logits (V,), seen (V,), noise (V,) -> token ()


def guide(logits: Tensor, weight: float) -> Tensor:
    """Away from what would be said without the text: (2, V) -> (V,)"""
    with_text, without = logits
    return with_text + weight * (with_text - without)


def penalize(logits: Tensor, seen: Tensor, penalty: float | Tensor) -> Tensor:
    """Make every token that was already said less likely, once, however often it was said."""
    return torch.where(seen, torch.where(logits < 0, logits * penalty, logits / penalty), logits)


def keep_min_p(logits: Tensor, min_p: float | Tensor) -> Tensor:
    """Drop tokens less likely than `min_p` times the most likely one."""
    p = logits.softmax(-1)
    return logits.masked_fill(p < min_p * p.amax(-1, keepdim=True), -torch.inf)


def keep_top_p(logits: Tensor, top_p: float | Tensor) -> Tensor:
    """Keep the most likely tokens that together reach `top_p`, and never fewer than one."""
    ascending, index = logits.sort(-1)
    dropped = ascending.softmax(-1).cumsum(-1) <= 1 - top_p
    dropped[..., -1] = False
    return logits.masked_fill(torch.zeros_like(dropped).scatter(-1, index, dropped), -torch.inf)


def keep_top_k(logits: Tensor, top_k: int) -> Tensor:
    """Keep the `top_k` most likely tokens and all that tie with the last of them."""
    last = logits.topk(min(top_k, logits.shape[-1])).values[..., -1:]
    return logits.masked_fill(logits < last, -torch.inf)


def pick(logits: Tensor, noise: Tensor) -> Tensor:
    """Draw one token: a race in which each runs at its probability against Exp(1) noise."""
    return (logits.softmax(-1) / noise).argmax(-1)


def llama_sampler(options: Options) -> Sampler:
    """English and Multilingual: penalty, temperature, min-p, top-p."""

    def sample(logits: Tensor, seen: Tensor, noise: Tensor) -> Tensor:
        logits = penalize(logits, seen, options.repetition_penalty)
        if options.temperature == 0:
            return logits.argmax(-1)
        logits = keep_min_p(logits / options.temperature, options.min_p)
        if options.top_p < 1:
            logits = keep_top_p(logits, options.top_p)
        return pick(logits, noise)

    return sample


def gpt2_sampler(options: Options) -> Sampler:
    """Turbo and Nano: temperature, top-k, top-p, penalty."""

    def sample(logits: Tensor, seen: Tensor, noise: Tensor) -> Tensor:
        if options.temperature == 0:
            return penalize(logits, seen, options.repetition_penalty).argmax(-1)
        logits = logits / options.temperature
        if options.top_k:
            logits = keep_top_k(logits, options.top_k)
        if options.top_p < 1:
            logits = keep_top_p(logits, options.top_p)
        return pick(penalize(logits, seen, options.repetition_penalty), noise)

    return sample
