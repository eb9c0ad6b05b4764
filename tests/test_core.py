"""Options: defaults written once, and values that are refused by name."""

from __future__ import annotations

from typing import Any

import pytest

from nightingale import core
from nightingale.core import Options
from nightingale.errors import OptionError
from nightingale.families import FAMILIES


def test_defaults_are_upstreams() -> None:
    llama, turbo = FAMILIES["multilingual"].options, FAMILIES["turbo"].options
    assert FAMILIES["english"].options == llama
    assert FAMILIES["nano"].options == turbo
    assert (llama.temperature, llama.min_p, llama.top_p, llama.top_k) == (0.8, 0.05, 1.0, 0)
    assert (llama.cfg_weight, llama.exaggeration, llama.repetition_penalty) == (0.5, 0.5, 1.2)
    assert (turbo.temperature, turbo.min_p, turbo.top_p, turbo.top_k) == (0.8, 0.0, 0.95, 1000)
    assert (turbo.cfg_weight, turbo.exaggeration, turbo.repetition_penalty) == (0.0, 0.0, 1.2)
    assert llama.max_tokens == 40 * core.TOKENS_PER_SECOND


@pytest.mark.parametrize(
    "wrong",
    [
        {"temperature": -0.1},
        {"temperature": float("nan")},
        {"top_p": 1.1},
        {"min_p": -1},
        {"top_k": -1},
        {"cfg_weight": float("inf")},
        {"repetition_penalty": 0},
        {"exaggeration": -1},
        {"seed": -1},
        {"seed": 2**63},
        {"max_tokens": 0},
        {"max_tokens": 5000},
    ],
)
def test_a_value_out_of_range_is_refused_by_name(wrong: dict[str, Any]) -> None:
    (name,) = wrong
    with pytest.raises(OptionError, match=f"{name} is .* but must lie between"):
        Options(**wrong)
