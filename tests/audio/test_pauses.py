"""Parts joined by pauses: exact from sound to sound, and without a click."""

from __future__ import annotations

import json

import numpy as np
import pytest
from numpy.typing import NDArray

from nightingale.audio.audible import AUDIBLE
from nightingale.audio.pauses import FADE, LEAD_IN, JoinState, PartJoiner

Samples = NDArray[np.float32]
LEAST = 3600


def part(n_before: int, n_loud: int, n_behind: int, seed: int = 0) -> Samples:
    """Silence with a little noise, a tone, silence; the tone does not begin or end softly."""
    noise = np.random.default_rng(seed).normal(size=n_before + n_loud + n_behind) * 1e-3
    noise[n_before : n_before + n_loud] += 0.5
    return noise.clip(-0.6, 0.6).astype(np.float32)


def joined(
    parts: list[Samples], pauses: list[int], chunk: int, trims_start: bool = False
) -> list[Samples]:
    joiner, given = PartJoiner(LEAST, trims_start=trims_start), []
    for samples, pause in zip(parts, pauses, strict=True):
        given.append(joiner.start_part(pause))
        given += [joiner.feed(samples[at : at + chunk]) for at in range(0, len(samples), chunk)]
    return [*given, joiner.finish()]


def silences(samples: Samples) -> list[int]:
    """Lengths of all runs between audible samples, in samples."""
    loud = np.flatnonzero(np.abs(samples) > AUDIBLE)
    return [int(n) - 1 for n in np.diff(loud) if n > 1]


PARTS = [part(2000, 900, 7000), part(5000, 900, 50), part(10, 900, 3000), part(900, 900, 20_000)]
PAUSES = [0, 8400, 19_200, 3600]


@pytest.mark.parametrize("chunk", [7, 37, 960, 100_000])
def test_pauses_are_exact_however_the_samples_come(chunk: int) -> None:
    whole = np.concatenate(joined(PARTS, PAUSES, chunk))
    assert silences(whole) == PAUSES[1:]
    assert np.array_equal(whole, np.concatenate(joined(PARTS, PAUSES, 10**6)))


def test_every_part_opens_and_closes_without_a_step() -> None:
    whole = np.concatenate(joined(PARTS, PAUSES, 960))
    zeros = np.flatnonzero(np.diff(whole == 0))  # where the digital silence of a pause begins, ends
    assert len(zeros) >= 4
    for at in zeros:
        assert np.abs(whole[at : at + 2]).max() < 1e-3


def test_one_part_is_left_as_it_is_unless_its_start_is_trimmed() -> None:
    (samples,) = parts = [part(2000, 900, 7000)]
    assert np.array_equal(np.concatenate(joined(parts, [0], 960)), samples)
    trimmed = np.concatenate(joined(parts, [0], 960, trims_start=True))
    assert len(trimmed) == len(samples) - 2000 + LEAD_IN
    assert abs(trimmed[0]) < 1e-6


def test_sound_is_never_held_back() -> None:
    joiner = PartJoiner(LEAST)
    joiner.start_part(0)
    samples = part(0, 900, 5000)
    given = joiner.feed(samples)
    assert 900 <= len(given) < 900 + LEAST
    assert np.array_equal(
        np.concatenate((given, joiner.feed(samples[:10]))), [*samples, *samples[:10]]
    )


def test_a_part_of_silence_is_no_sound_and_adds_nothing() -> None:
    parts = [part(100, 900, 500), part(5000, 0, 0), part(100, 900, 500)]
    whole = np.concatenate(joined(parts, [0, 8400, 8400], 960))
    assert silences(whole) == [8400]


def test_where_a_part_begins_is_known_with_its_first_sound() -> None:
    joiner = PartJoiner(LEAST, trims_start=True)
    joiner.start_part(0)
    assert not joiner.is_settled
    joiner.feed(part(2000, 0, 0))
    given = joiner.feed(part(0, 900, 0))
    assert joiner.is_settled
    assert len(given) == LEAD_IN + 900
    assert joiner.part_start == LEAD_IN - 2000


@pytest.mark.parametrize("n_done", [1, 2, 3])
def test_a_state_between_two_parts_goes_on_to_the_bit(n_done: int) -> None:
    whole = np.concatenate(joined(PARTS, PAUSES, 960))
    first, given = PartJoiner(LEAST), []
    for samples, pause in zip(PARTS[:n_done], PAUSES[:n_done], strict=True):
        given += [first.start_part(pause), first.feed(samples)]
    state = JoinState.from_json(json.loads(json.dumps(first.state.to_json())))
    assert len(state.tail) <= FADE
    second = PartJoiner(LEAST, state=state)
    for samples, pause in zip(PARTS[n_done:], PAUSES[n_done:], strict=True):
        given += [second.start_part(pause), second.feed(samples)]
    assert np.array_equal(np.concatenate([*given, second.finish()]), whole)
