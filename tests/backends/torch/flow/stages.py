"""What the flow says on its way from tokens to mel, and at which stage two flows part."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

from torch import Tensor

from nightingale.backends.torch.flow.model import Flow
from nightingale.core import FlowPrompt

Trace = dict[str, Tensor]  # by stage, in the order of computing


def trace(flow: Flow, tokens: Tensor, prompt: FlowPrompt, noise: Tensor) -> Trace:
    """Encoder output, speaker, x after each step, all (M, 80) or (80,), and the mel (80, M)."""
    said = {"encoder": flow.encode(tokens, prompt), "speaker": flow.speaker(prompt)}
    solve = flow.solve

    def overheard(*given: Any) -> Iterator[Tensor]:
        for number, x in enumerate(solve(*given), 1):
            said[f"step {number}"] = x
            yield x

    with patch.object(flow, "solve", overheard):
        mel = flow.render(tokens, prompt, 0, noise=noise)
    return said | {"mel": mel}


def errors(ours: Trace, theirs: Trace) -> dict[str, float]:
    """The largest absolute difference of each stage; another shape is infinitely wrong."""
    assert ours.keys() == theirs.keys(), f"{list(ours)} are not {list(theirs)}"
    return {
        stage: float((said - theirs[stage]).abs().max())
        if said.shape == theirs[stage].shape
        else math.inf
        for stage, said in ours.items()
    }


def worst(cases: list[dict[str, float]]) -> dict[str, float]:
    return {stage: max(_bad(case[stage]) for case in cases) for stage in cases[0]}


def first_deviation(found: dict[str, float], bar: float) -> str | None:
    """The first stage beyond the bar, in the order of computing."""
    return next((stage for stage, error in found.items() if _bad(error) > bar), None)


def table(columns: dict[str, dict[str, float]]) -> str:
    """Stages down, models across."""
    stages = max((list(column) for column in columns.values()), key=len)
    lines = [f"{'stage':10}" + "".join(f"{name:>12}" for name in columns)]
    for stage in stages:
        cells = (f"{column[stage]:.1e}" if stage in column else "" for column in columns.values())
        lines.append(f"{stage:10}" + "".join(f"{cell:>12}" for cell in cells))
    return "\n".join(lines)


def _bad(error: float) -> float:
    return math.inf if math.isnan(error) else error
