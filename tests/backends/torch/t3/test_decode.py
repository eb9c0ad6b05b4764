"""The plain loop, on a model that says what the test wants."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from nightingale.backends.torch.t3.decode import decode
from nightingale.core import END_OF_SPEECH, START_OF_SPEECH

N = 6563


class Scripted:
    """Says the given tokens and notes what it was made to read."""

    def __init__(self, tokens: list[int], *, penalizes_start: bool = True) -> None:
        self._tokens = iter(tokens)
        self.penalizes_start = penalizes_start
        self.read: list[tuple[int, int]] = []

    def first(self) -> Tensor:
        return self._logits()

    def next(self, token: Tensor, index: int) -> Tensor:
        self.read.append((int(token), index))
        return self._logits()

    def _logits(self) -> Tensor:
        logits = torch.zeros(N)
        logits[next(self._tokens)] = 1
        return logits


class Spy:
    """Takes the best token and notes which tokens counted as said."""

    def __init__(self) -> None:
        self.seen: list[list[int]] = []

    def __call__(self, logits: Tensor, seen: Tensor, _noise: Tensor) -> Tensor:
        self.seen.append(seen.nonzero().flatten().tolist())
        return logits.argmax()


def run(model: Scripted, max_tokens: int = 100, spy: Spy | None = None) -> Iterator[int]:
    return decode(model, spy or Spy(), lambda _index: torch.ones(N), max_tokens)


def test_the_end_token_comes_last_and_is_not_read_again() -> None:
    model = Scripted([5, 6, END_OF_SPEECH, 7])
    assert list(run(model)) == [5, 6, END_OF_SPEECH]
    assert model.read == [(5, 0), (6, 1)]


def test_the_limit_ends_without_an_end_token_and_without_a_wasted_step() -> None:
    model = Scripted([5, 6, 7, 8])
    assert list(run(model, max_tokens=3)) == [5, 6, 7]
    assert model.read == [(5, 0), (6, 1)]


def test_nothing_is_computed_before_it_is_asked_for_nor_after_the_stop() -> None:
    model = Scripted([5, 6, 7, 8])
    tokens = run(model)
    assert next(tokens) == 5
    assert model.read == []
    assert next(tokens) == 6
    tokens.close()  # type: ignore[attr-defined]
    assert model.read == [(5, 0)]
    assert list(tokens) == []


def test_llama_keeps_penalizing_the_start_token() -> None:
    spy = Spy()
    list(run(Scripted([5, 6, 5]), max_tokens=3, spy=spy))
    assert spy.seen == [[START_OF_SPEECH], [5, START_OF_SPEECH], [5, 6, START_OF_SPEECH]]


def test_gpt2_penalizes_the_start_token_only_once() -> None:
    spy = Spy()
    list(run(Scripted([5, 6, 5], penalizes_start=False), max_tokens=3, spy=spy))
    assert spy.seen == [[START_OF_SPEECH], [5], [5, 6]]


def test_each_step_gets_the_noise_of_its_own_index() -> None:
    asked = []

    def noise(index: int) -> Tensor:
        asked.append(index)
        return torch.ones(N)

    list(decode(Scripted([5, 6, END_OF_SPEECH]), Spy(), noise, 100))
    assert asked == [0, 1, 2]
