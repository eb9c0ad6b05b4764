"""How sure a mean is: the percentile bootstrap, the same on every run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nightingale.errors import OptionError

N_RESAMPLES = 2000
LEVEL = 95.0  # percent
SEED = 0


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure, and between which bounds it would mostly lie if other clips had been drawn."""

    value: float
    low: float
    high: float


def bootstrap(sums: Sequence[float], counts: Sequence[float] | None = None) -> Interval:
    """The sum of `sums` by the sum of `counts`, one of each per clip; without counts, a mean."""
    if not sums:
        raise OptionError("there is nothing to take a mean of; judge one clip at least")
    numbers = np.asarray(sums, dtype=np.float64)
    weights = np.ones_like(numbers) if counts is None else np.asarray(counts, dtype=np.float64)
    drawn = np.random.default_rng(SEED).integers(len(numbers), size=(N_RESAMPLES, len(numbers)))
    margin = (100 - LEVEL) / 2
    value = _ratio(numbers.sum(keepdims=True), weights.sum(keepdims=True))
    means = _ratio(numbers[drawn].sum(axis=1), weights[drawn].sum(axis=1))
    low, high = np.percentile(means, [margin, 100 - margin])
    return Interval(float(value[0]), float(low), float(high))


def _ratio(sums: NDArray[np.float64], counts: NDArray[np.float64]) -> NDArray[np.float64]:
    # A draw may hold nothing but clips without a word: then one error counts as one.
    return sums / np.where(counts > 0, counts, 1)
