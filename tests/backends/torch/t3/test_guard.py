"""The guard follows sure heads, ends nothing early, and ends what goes on too long."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from nightingale.backends.torch.t3.guard import LINGER, PATIENCE, STUCK, Guard
from nightingale.core import END_OF_SPEECH

N_TEXT = 20
N_VOCABULARY = END_OF_SPEECH + 1


def row(place: int, sure: float = 0.9) -> Tensor:
    """(2, N_TEXT): both heads look at one letter."""
    made = torch.full((2, N_TEXT), (1 - sure) / (N_TEXT - 1))
    made[:, place] = sure
    return made


def likeliest(logits: Tensor, seen: Tensor, noise: Tensor) -> Tensor:
    del seen, noise
    return logits.argmax()


def speak(places: list[int], *, wants_end: bool, sure: float = 0.9) -> tuple[list[bool], Guard]:
    """A model whose heads look there, one after the other; for each, whether speech ended."""
    guard = Guard(((0, 0), (1, 1)), N_TEXT)
    sample, ended = guard.watch(likeliest), []
    for place in places:
        guard.alignment.rows.append(row(place, sure))
        logits = torch.zeros(N_VOCABULARY)
        logits[END_OF_SPEECH] = 1.0 if wants_end else -1.0
        ended.append(int(sample(logits, logits > 2, logits)) == END_OF_SPEECH)
    return ended, guard


def test_it_does_not_end_before_the_text_does() -> None:
    ended, guard = speak(list(range(N_TEXT)), wants_end=True)
    assert ended == [False] * 17 + [True] * 3
    assert guard.places == list(range(N_TEXT))
    assert guard.is_said


def test_it_does_not_go_on_after_the_text() -> None:
    ended, _ = speak([*range(N_TEXT), *[N_TEXT - 1] * 60], wants_end=False)
    assert ended.index(True) == N_TEXT - 1 + LINGER


def test_a_pause_is_no_end_and_a_loop_is() -> None:
    pausing = [*range(8), *[7] * (PATIENCE - 2), *range(8, N_TEXT)]
    ended, guard = speak(pausing, wants_end=True)
    assert ended.index(True) == len(pausing) - 3
    assert guard.is_said
    looping = [*range(8), *[3, 4, 5, 6, 7] * 30]
    ended, guard = speak(looping, wants_end=False)
    assert ended.index(True) == 7 + STUCK
    assert not guard.is_said
    assert guard.places[-1] == 7


def test_after_some_patience_it_may_end_where_it_is() -> None:
    ended, _ = speak([*range(8), *[7] * 60], wants_end=True)
    assert ended.index(True) == 7 + PATIENCE


def test_a_stray_look_ahead_is_not_followed() -> None:
    _, guard = speak([0, 1, 2, 19, 3, 4], wants_end=True)
    assert guard.places == [0, 1, 2, 2, 3, 4]


@pytest.mark.parametrize("wants_end", [True, False])
def test_heads_that_are_not_sure_change_nothing(wants_end: bool) -> None:
    ended, guard = speak([*range(N_TEXT), *[5] * 200], wants_end=wants_end, sure=0.1)
    assert ended == [wants_end] * len(ended)
    assert guard.is_said
