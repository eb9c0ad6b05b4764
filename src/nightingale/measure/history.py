"""Results of earlier days: kept as lines of JSON, and compared: better, worse, or noise."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

Verdict = Literal["better", "worse", "noise"]

LEAST = 0.03  # a change of less is nobody's business
N_RESAMPLES = 2000
MORE_IS_BETTER = ("tokens per second",)


@dataclass(frozen=True, slots=True)
class Change:
    """A figure then and now."""

    before: float
    now: float
    verdict: Verdict


def keep(file: Path, subject: Mapping[str, str], facts: Mapping[str, Any]) -> None:
    """Add a result to what is known of its subject."""
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a", encoding="utf-8") as lines:
        lines.write(json.dumps({"subject": dict(subject), **facts}) + "\n")


def last(file: Path, subject: Mapping[str, str], machine: Mapping[str, Any]) -> Any | None:
    """The newest result of that subject on that machine."""
    if not file.is_file():
        return None
    rows = map(json.loads, file.read_text(encoding="utf-8").splitlines())
    same = [r for r in rows if r["subject"] == dict(subject) and r["machine"] == dict(machine)]
    return same[-1] if same else None


def compare(name: str, before: Sequence[float], now: Sequence[float]) -> Change:
    """Whether the median moved by more than repeated runs do."""
    old, new = statistics.median(before), statistics.median(now)
    low, high = _spread_of_ratio(before, now)
    if low <= 1 <= high or abs(new / old - 1) < LEAST:
        return Change(old, new, "noise")
    is_better = (new > old) == (name in MORE_IS_BETTER)
    return Change(old, new, "better" if is_better else "worse")


def _spread_of_ratio(before: Sequence[float], now: Sequence[float]) -> tuple[float, float]:
    """Between which bounds the ratio of medians mostly lies, drawing the runs again and again."""
    rng = np.random.default_rng(0)
    drawn = [
        np.median(rng.choice(np.asarray(runs), (N_RESAMPLES, len(runs))), axis=1)
        for runs in (before, now)
    ]
    low, high = np.percentile(drawn[1] / drawn[0], [2.5, 97.5])
    return float(low), float(high)
