"""Requests that share a pass through T3 say what each of them says alone."""

from __future__ import annotations

import copy
import functools
import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from nightingale.backends.base import TokenEvent, TokenRequest
from nightingale.backends.torch.engine import TorchTokenEngine
from nightingale.backends.torch.slot_engine import SlotTokenEngine
from nightingale.backends.torch.t3 import slots
from nightingale.backends.torch.t3.model import T3
from nightingale.backends.torch.t3.quantized import QuantizedStack, quantize
from nightingale.core import Family
from nightingale.errors import LayoutError
from nightingale.families import FAMILIES
from nightingale.nn.packing import Bits
from tests.tiny import tiny_t3, tiny_text, tiny_voice

Precision = Bits | None  # None: fp32


@functools.cache
def model(family: Family, bits: Precision) -> T3:
    t3 = copy.deepcopy(tiny_t3(family, seed=3))
    return t3 if bits is None else quantize(t3, bits)


@functools.cache
def request(family: Family, number: int) -> TokenRequest:
    """No two are the same, and each has its own length, voice, seed and way to draw."""
    rng = random.Random(number)
    options = replace(
        FAMILIES[family].options,
        seed=number,
        max_tokens=rng.randint(2, 9),
        temperature=rng.choice((0.0, 0.6, 0.9)),
        top_p=rng.choice((0.8, 1.0)),
        repetition_penalty=rng.choice((1.2, 2.0)),
        guard=rng.random() < 0.5,
    )
    if family == "multilingual":
        options = replace(options, cfg_weight=rng.choice((0.0, 0.3, 0.5)))
    text = tiny_text(number, rng.randint(3, 40), family)
    voice = tiny_voice(number % 5, 10 + number % 5)
    forced = tuple(rng.choices(range(6000), k=rng.choice((0, 0, 2))))
    return TokenRequest(text, voice, options, forced)


Said = tuple[tuple[int, int | None, bool], ...]  # token, position and whether all was said


def noted(events: Sequence[TokenEvent]) -> Said:
    assert all(event.error is None for event in events)
    return tuple((event.token, event.position, event.is_said) for event in events)


@functools.cache
def alone(family: Family, bits: Precision, number: int) -> Said:
    engine = TorchTokenEngine(model(family, bits))
    live, events = engine.add(request(family, number)), list[TokenEvent]()
    while not events or not events[-1].is_last:
        events += engine.step((live,))
    return noted(events)


def together(
    family: Family, bits: Precision, n_requests: int, width: int, n_slots: int = 0
) -> list[Said]:
    """Admitted at drawn times, stepped in drawn company of up to `width`."""
    t3, rng = model(family, bits), random.Random(width)
    engine = SlotTokenEngine(t3, n_slots) if n_slots else TorchTokenEngine(t3)
    waiting = list(range(n_requests))
    said: dict[int, list[TokenEvent]] = {number: [] for number in waiting}
    live: dict[int, int] = {}  # number in the engine -> ours
    while waiting or live:
        while waiting and len(live) < width and (not live or rng.random() < 0.6):
            number = waiting.pop(0)
            live[engine.add(request(family, number))] = number
        for event in engine.step(rng.sample(list(live), rng.randint(1, len(live)))):
            said[live[event.number]].append(event)
            if event.is_last:
                del live[event.number]
    assert len(engine) == 0
    return [noted(events) for events in said.values()]


def check(family: Family, bits: Precision, n_requests: int, width: int) -> None:
    wanted = [alone(family, bits, number) for number in range(n_requests)]
    assert together(family, bits, n_requests, width) == wanted


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("family", ["multilingual", "nano"])
def test_batch_mates_change_no_token(family: Family, bits: Precision) -> None:
    check(family, bits, 10, 8)


@pytest.mark.slow
@pytest.mark.parametrize("width", [1, 4, 8])
@pytest.mark.parametrize("bits", [None, 8, 4])
@pytest.mark.parametrize("family", ["multilingual", "turbo"])
def test_batch_mates_change_no_token_of_many_requests(
    family: Family, bits: Precision, width: int
) -> None:
    check(family, bits, 64, width)


@pytest.mark.parametrize("n_slots", [pytest.param(1, marks=pytest.mark.slow), 4])
@pytest.mark.parametrize("family", ["multilingual", "nano"])
def test_slots_change_no_token(family: Family, n_slots: int) -> None:
    wanted = [alone(family, None, number) for number in range(8)]
    assert together(family, None, 8, 6, n_slots) == wanted


@pytest.mark.slow
@pytest.mark.parametrize("n_slots", [1, 4, 8])
@pytest.mark.parametrize("family", ["english", "multilingual", "turbo"])
def test_slots_change_no_token_of_many_requests(family: Family, n_slots: int) -> None:
    """Fewer slots than requests: some are swapped out meanwhile."""
    wanted = [alone(family, None, number) for number in range(64)]
    assert together(family, None, 64, 8, n_slots) == wanted


@pytest.mark.slow
def test_a_leak_between_slots_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that sees the keys of the slot before it."""
    attend = slots._SlotContext.attend

    def leaky(self: Any, layer: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        return attend(self, layer, queries, keys + 0.3 * keys.roll(self.n_rows, 0), values)

    wanted = [alone("multilingual", None, number) for number in range(8)]
    monkeypatch.setattr(slots._SlotContext, "attend", leaky)
    assert together("multilingual", None, 8, 6, 4) != wanted


@pytest.mark.slow
@pytest.mark.parametrize("bits", [8, 4])
def test_a_leak_between_rows_is_found(bits: Precision, monkeypatch: pytest.MonkeyPatch) -> None:
    read = QuantizedStack.read_slots

    def leaky(self: QuantizedStack, inputs: Sequence[Tensor], slots: Any) -> list[Tensor]:
        rows = read(self, inputs, slots)
        return [row + 0.05 * rows[i - 1][:1] * (len(rows) > 1) for i, row in enumerate(rows)]

    wanted = [alone("multilingual", bits, number) for number in range(10)]
    monkeypatch.setattr(QuantizedStack, "read_slots", leaky)
    assert together("multilingual", bits, 10, 1) == wanted
    assert together("multilingual", bits, 10, 8) != wanted


def test_a_batch_is_one_pass_through_the_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = TorchTokenEngine(model("multilingual", 8))
    numbers = [engine.add(request("multilingual", number)) for number in range(5)]
    engine.step(numbers)  # their prompts
    read, sizes = QuantizedStack.read_slots, []

    def counted(self: QuantizedStack, inputs: Sequence[Tensor], slots: Any) -> list[Tensor]:
        sizes.append(len(inputs))
        return read(self, inputs, slots)

    monkeypatch.setattr(QuantizedStack, "read_slots", counted)
    engine.step(numbers)
    assert sizes == [5]


def test_one_that_fails_does_not_fail_the_others() -> None:
    engine = TorchTokenEngine(model("multilingual", 8))
    numbers = [engine.add(request("multilingual", number)) for number in range(4)]
    said = {number: engine.step((number,)) for number in numbers}
    cache, _ = engine._live[numbers[2]].utterance.slot
    cache.keys.pop()  # one that does not fit the layers
    for _ in range(8):
        for event in engine.step([n for n in numbers if not said[n][-1].is_last]):
            said[event.number].append(event)
    assert isinstance(said[numbers[2]][1].error, LayoutError)
    for ours, number in enumerate(numbers):
        if ours != 2:
            assert noted(said[number]) == alone("multilingual", 8, ours)


@torch.inference_mode()
def test_without_requests_nothing_is_computed() -> None:
    assert TorchTokenEngine(model("multilingual", 8)).step(()) == []
