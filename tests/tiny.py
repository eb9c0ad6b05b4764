"""Small models with random weights: the true code path in milliseconds."""

from __future__ import annotations

import torch

from nightingale.backends.torch.t3.model import T3, T3Config
from nightingale.core import Family, T3Prompt
from tests.random_weights import randomize

LLAMA_HEADS = ((1, 0), (2, 1), (0, 1))

TINY: dict[Family, T3Config] = {
    "english": T3Config("english", 3, 128, 2, 256, 300, 8194, 150),
    "multilingual": T3Config(
        "multilingual", 3, 128, 2, 320, 400, 8194, 150, alignment_heads=LLAMA_HEADS
    ),
    "turbo": T3Config("turbo", 3, 128, 2, 512, 500, 6563, 375),
    "nano": T3Config("nano", 2, 64, 1, 256, 500, 6563, 375),
    "fledgling": T3Config("fledgling", 3, 128, 2, 256, 300, 6563, 150),
}


def tiny_t3(family: Family = "multilingual", seed: int = 0) -> T3:
    model = T3(TINY[family]).eval().requires_grad_(False)
    randomize(model, seed)
    return model


def tiny_voice(seed: int = 0, n_tokens: int = 150) -> T3Prompt:
    generator = torch.Generator().manual_seed(1000 + seed)
    speaker = torch.randn(256, generator=generator)
    return T3Prompt(
        speaker=(speaker / speaker.norm()).numpy(),
        tokens=torch.randint(0, 6561, (n_tokens,), generator=generator).numpy(),
    )


def tiny_text(seed: int = 0, n_tokens: int = 12, family: Family = "multilingual") -> list[int]:
    generator = torch.Generator().manual_seed(2000 + seed)
    middle = torch.randint(1, 255, (n_tokens,), generator=generator).tolist()
    return middle if family in ("turbo", "nano") else [255, *middle, 0]
