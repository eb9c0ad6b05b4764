"""The sampling steps, one by one and in their two orders."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from nightingale.backends.torch.t3.sampling import (
    gpt2_sampler,
    guide,
    keep_min_p,
    keep_top_k,
    keep_top_p,
    llama_sampler,
    penalize,
    pick,
)
from nightingale.core import Options

P = torch.tensor([0.5, 0.25, 0.15, 0.1])
LOGITS = P.log()
NOTHING_SEEN = torch.zeros(4, dtype=torch.bool)
EVEN = torch.ones(4)


def kept(logits: torch.Tensor) -> list[int]:
    return logits.isfinite().nonzero().flatten().tolist()


def test_guidance_moves_away_from_the_uncond_row() -> None:
    logits = torch.tensor([[1.0, 2.0], [0.0, 4.0]])
    assert guide(logits, 0.5).tolist() == [1.5, 1.0]


def test_a_repeated_token_is_penalized_whatever_its_sign() -> None:
    seen = torch.tensor([True, True, False])
    assert penalize(torch.tensor([2.0, -2.0, 2.0]), seen, 2.0).tolist() == [1.0, -4.0, 2.0]


@pytest.mark.parametrize(
    ("min_p", "left"), [(0.0, [0, 1, 2, 3]), (0.25, [0, 1, 2]), (0.4, [0, 1]), (1.0, [0])]
)
def test_min_p_is_relative_to_the_best(min_p: float, left: list[int]) -> None:
    assert kept(keep_min_p(LOGITS, min_p)) == left


@pytest.mark.parametrize(
    ("top_p", "left"),
    [(0.0, [0]), (0.4, [0]), (0.6, [0, 1]), (0.8, [0, 1, 2]), (0.95, [0, 1, 2, 3])],
)
def test_top_p_keeps_the_smallest_set_that_reaches_it(top_p: float, left: list[int]) -> None:
    assert kept(keep_top_p(LOGITS, top_p)) == left


def test_top_p_puts_tokens_back_in_their_places() -> None:
    shuffled = LOGITS[[2, 0, 3, 1]]
    assert kept(keep_top_p(shuffled, 0.6)) == [1, 3]


@pytest.mark.parametrize(("top_k", "left"), [(1, [0]), (2, [0, 1]), (99, [0, 1, 2, 3])])
def test_top_k_keeps_the_best(top_k: int, left: list[int]) -> None:
    assert kept(keep_top_k(LOGITS, top_k)) == left


def test_top_k_keeps_ties_with_the_last() -> None:
    assert kept(keep_top_k(torch.tensor([3.0, 1.0, 1.0, 0.0]), 2)) == [0, 1, 2]


@pytest.mark.slow
def test_picking_follows_the_probabilities() -> None:
    """Chi-square over 20,000 draws, 3 degrees of freedom: 16.3 is exceeded once in a thousand."""
    generator = torch.Generator().manual_seed(5)
    n = 20_000
    noise = torch.empty(n, 4).exponential_(generator=generator)
    counts = torch.stack([pick(LOGITS, row) for row in noise]).bincount(minlength=4)
    assert float(((counts - n * P) ** 2 / (n * P)).sum()) < 16.3


def test_temperature_zero_takes_the_best_whatever_the_noise() -> None:
    noise = torch.tensor([1e9, 1e-9, 1e-9, 1e-9])
    for sampler in (llama_sampler, gpt2_sampler):
        sample = sampler(Options(temperature=0.0, top_k=0, min_p=0.0))
        assert int(sample(LOGITS, NOTHING_SEEN, noise)) == 0


def test_llama_penalizes_before_it_cuts_and_gpt2_after() -> None:
    """With top-p 0.6 tokens 0 and 1 remain; a penalty on 0 that comes first lets 2 in instead."""
    logits = torch.tensor([2.0, 1.3, 0.8, 0.1])
    seen = torch.tensor([True, False, False, False])
    noise = torch.tensor([1.0, 1.0, 0.05, 1.0])  # token 2 wins if it is still in the race
    options = Options(temperature=1.0, min_p=0.0, top_p=0.6, repetition_penalty=4.0)
    assert int(llama_sampler(options)(logits, seen, noise)) == 2
    assert int(gpt2_sampler(options)(logits, seen, noise)) in (0, 1)


@pytest.mark.parametrize(
    "change",
    [{"temperature": 5.0}, {"min_p": 0.9}, {"top_p": 0.3}, {"repetition_penalty": 50.0}],
)
def test_every_llama_option_has_an_effect(change: dict[str, Any]) -> None:
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(300, generator=generator) * 2
    seen = torch.rand(300, generator=generator) < 0.5
    noise = torch.empty(50, 300).exponential_(generator=generator)
    plain, changed = llama_sampler(Options()), llama_sampler(Options(**change))
    assert any(int(plain(logits, seen, e)) != int(changed(logits, seen, e)) for e in noise)
