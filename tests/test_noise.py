"""Noise by name: what is drawn depends on (seed, purpose, index) and on nothing else."""

from __future__ import annotations

import math

import numpy as np

from nightingale.noise import NoiseStream, exponential, normal, uniform

T = NoiseStream.TOKENS


def test_a_draw_can_be_repeated_out_of_order() -> None:
    forward = [exponential(7, T, index, 100) for index in range(5)]
    backward = [exponential(7, T, index, 100) for index in reversed(range(5))]
    assert all(np.array_equal(a, b) for a, b in zip(forward, reversed(backward), strict=True))


def test_a_longer_draw_begins_with_the_shorter_one() -> None:
    assert np.array_equal(exponential(7, T, 3, 8194)[:101], exponential(7, T, 3, 101))


def test_seeds_and_indices_give_different_numbers() -> None:
    rows = [exponential(seed, T, index, 50) for seed in (0, 1, 2**62) for index in (0, 1, 2)]
    assert len({tuple(row.tolist()) for row in rows}) == 9


def test_the_numbers_never_change_from_version_to_version() -> None:
    """A stored voice of a seed: changing these changes what every user hears."""
    drawn = exponential(42, T, 0, 4).tolist()
    assert [round(x, 6) for x in drawn] == STORED


def test_draws_are_exponential_and_never_zero() -> None:
    """200,000 draws: mean 1, variance 1, P(x > 2) = e**-2, each within five standard errors."""
    drawn = np.concatenate([exponential(1, T, index, 2000) for index in range(100)]).astype(float)
    n = drawn.size
    assert drawn.min() > 0
    assert abs(drawn.mean() - 1) < 5 / n**0.5
    assert abs(drawn.var() - 1) < 5 * 8**0.5 / n**0.5
    tail = math.exp(-2)
    assert abs((drawn > 2).mean() - tail) < 5 * (tail * (1 - tail) / n) ** 0.5


def test_rows_of_normal_draws_belong_to_their_index() -> None:
    whole = normal(3, NoiseStream.FRAMES, 0, 30, 80)
    assert np.array_equal(normal(3, NoiseStream.FRAMES, 10, 5, 80), whole[10:15])
    assert not np.array_equal(normal(3, NoiseStream.PROMPT_FRAMES, 0, 30, 80), whole)
    assert normal(3, NoiseStream.FRAMES, 0, 0, 80).shape == (0, 80)
    assert normal(3, NoiseStream.FRAMES, 0, 2, 7).shape == (2, 7)


def test_normal_draws_are_normal_and_independent() -> None:
    """160,000 draws: moments, tail and neighbours' correlation within five standard errors."""
    drawn = normal(9, NoiseStream.FRAMES, 0, 2000, 80).astype(float)
    n = drawn.size
    assert abs(drawn.mean()) < 5 / n**0.5
    assert abs(drawn.var() - 1) < 5 * 2**0.5 / n**0.5
    assert abs((drawn**4).mean() - 3) < 5 * 96**0.5 / n**0.5
    for shifted in (np.roll(drawn, n, axis) for n, axis in ((1, 0), (1, 1), (40, 1))):
        assert abs((drawn * shifted).mean()) < 5 / n**0.5


def test_uniform_draws_fill_their_range() -> None:
    drawn = uniform(9, NoiseStream.SOURCE_PHASE, 0, 10_000)
    assert drawn.min() > 0
    assert drawn.max() < 1
    assert abs(drawn.mean() - 0.5) < 5 * (1 / 12 / 10_000) ** 0.5


STORED = [0.139209, 0.812501, 1.761078, 0.202861]
