"""The bootstrap: repeatable, and as wide as it should be."""

from __future__ import annotations

import numpy as np
import pytest

from nightingale.errors import OptionError
from nightingale.measure.interval import Interval, bootstrap


def test_an_interval_is_as_wide_as_theory_says() -> None:
    values = np.random.default_rng(1).normal(3.0, 2.0, size=400)
    found = bootstrap(values.tolist())
    half = 1.96 * values.std() / 20
    assert found.value == pytest.approx(values.mean())
    assert found.low == pytest.approx(values.mean() - half, abs=0.03)
    assert found.high == pytest.approx(values.mean() + half, abs=0.03)


def test_the_same_clips_have_the_same_interval() -> None:
    values = np.random.default_rng(2).normal(size=50).tolist()
    assert bootstrap(values) == bootstrap(values)


def test_clips_that_agree_leave_no_doubt() -> None:
    assert bootstrap([2.0] * 9) == Interval(2.0, 2.0, 2.0)
    assert bootstrap([1, 2], [0.25, 0.5]) == Interval(4.0, 4.0, 4.0)


def test_whole_clips_are_drawn_not_words() -> None:
    """One long clip that went wrong is either in a draw or not."""
    found = bootstrap([0, 0, 0, 50], [50, 50, 50, 50])
    assert (found.value, found.low) == (0.25, 0.0)
    assert found.high >= 0.5


def test_texts_without_a_word_do_not_divide_by_nothing() -> None:
    assert bootstrap([2, 0], [0, 0]).value == 2


def test_no_clips_are_refused() -> None:
    with pytest.raises(OptionError, match="one clip at least"):
        bootstrap([])
