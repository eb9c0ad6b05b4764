"""The step of fixed shape: its bits do not depend on slot or company, and it is one graph."""

from __future__ import annotations

import functools
import random
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from nightingale.backends.base import TokenEvent, TokenRequest
from nightingale.backends.torch import slot_engine
from nightingale.backends.torch.slot_engine import SlotTokenEngine
from nightingale.backends.torch.t3 import slots
from nightingale.backends.torch.t3.guard import Guard
from nightingale.backends.torch.t3.model import T3
from nightingale.backends.torch.t3.slots import SlotConfig, SlotState, SlotStep
from nightingale.families import FAMILIES
from tests.tiny import tiny_t3, tiny_text, tiny_voice

OPTIONS = FAMILIES["multilingual"].options


@functools.cache
def small_t3() -> T3:
    """Engines only read it."""
    return tiny_t3(seed=3)


def request(number: int, max_tokens: int = 20) -> TokenRequest:
    options = replace(OPTIONS, seed=number, max_tokens=max_tokens)
    return TokenRequest(tiny_text(number, 5 + number % 30), tiny_voice(number % 3, 12), options)


def keys_of(engine: SlotTokenEngine, number: int) -> Tensor:
    """All that was read so far, in every layer and row: it depends on every bit before it."""
    request = engine._requests[number]
    if request.swapped_out is not None:
        cache, n = request.swapped_out.cache, request.length
        return torch.stack([keys[:, :, :n] for keys in cache.keys])
    cache, *_ = engine._slots.take(request.slot, request.length)
    return torch.stack(cache.keys)


def alone(number: int, n_slots: int, n_steps: int) -> Tensor:
    engine = SlotTokenEngine(small_t3(), n_slots)
    live = engine.add(request(number))
    for _ in range(n_steps):
        engine.step((live,))
    return keys_of(engine, live)


def in_company(n_requests: int, n_slots: int, n_steps: int, seed: int) -> list[Tensor]:
    """Each as far as `n_steps`, in drawn company and in whatever slot is free."""
    rng, engine = random.Random(seed), SlotTokenEngine(small_t3(), n_slots)
    live = [engine.add(request(number)) for number in range(n_requests)]
    left = dict.fromkeys(live, n_steps)
    while any(left.values()):
        able = [number for number, n in left.items() if n]
        for event in engine.step(rng.sample(able, rng.randint(1, len(able)))):
            left[event.number] -= 1
    return [keys_of(engine, number) for number in live]


@pytest.mark.parametrize("n_slots", [pytest.param(2, marks=pytest.mark.slow), 4])
def test_bits_depend_neither_on_slot_nor_on_company(n_slots: int) -> None:
    wanted = [alone(number, n_slots, 5) for number in range(5)]
    for found, one in zip(in_company(5, n_slots, 5, seed=0), wanted, strict=True):
        assert torch.equal(found, one)


@pytest.mark.parametrize(
    "n_seeds",
    [pytest.param(10, marks=pytest.mark.slow), pytest.param(50, marks=pytest.mark.fullsize)],
)
def test_bits_of_many_runs(n_seeds: int) -> None:
    """Ten requests for each seed: 500 runs in full, of which 100 are made every time.

    On one thread: with two, and AVX2, torch's attention on the CPU sums up a row by its place among
    the others. The CPU's own engine has no slots.
    """
    wanted = [alone(number, 4, 5) for number in range(10)]
    for seed in range(n_seeds):
        for found, one in zip(in_company(10, 4, 5, seed), wanted, strict=True):
            assert torch.equal(found, one)


@pytest.mark.slow
def test_other_bits_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    attend = slots._SlotContext.attend

    def leaky(self: Any, layer: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        return attend(self, layer, queries, keys + 1e-6 * keys.roll(self.n_rows, 0), values)

    wanted = alone(0, 4, 5)
    monkeypatch.setattr(slots._SlotContext, "attend", leaky)
    assert not torch.equal(in_company(5, 4, 5, seed=0)[0], wanted)


@pytest.mark.slow
def test_what_a_request_needs_is_its_own_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """A long neighbour makes nobody's attention longer; and everybody's keys have room."""
    monkeypatch.setattr(slot_engine, "CAPACITY_BLOCK", 16)
    monkeypatch.setattr(slots, "CAPACITY_BLOCK", 16)
    engine = SlotTokenEngine(small_t3(), 4)
    capacities: list[int] = []
    run = engine._run
    engine._wrap = lambda step: lambda capacity: capacities.append(capacity) or step(capacity)  # type: ignore[func-returns-value]
    engine._run = lambda capacity: capacities.append(capacity) or run(capacity)  # type: ignore[func-returns-value]
    numbers = [engine.add(request(0, 60)), engine.add(request(29, 60))]
    said: dict[int, list[int]] = {number: [] for number in numbers}
    for _ in range(24):
        for event in engine.step(numbers):
            said[event.number].append(event.token)
    assert len(set(capacities)) > 2
    assert engine._slots.capacity == max(capacities)
    for number, ours in zip(numbers, (0, 29), strict=True):
        plain = SlotTokenEngine(small_t3(), 4)
        live = plain.add(request(ours, 60))
        assert said[number] == [plain.step((live,))[0].token for _ in range(24)]


@pytest.mark.slow
def test_a_slot_that_was_left_full_harms_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slot_engine, "CAPACITY_BLOCK", 64)
    monkeypatch.setattr(slots, "CAPACITY_BLOCK", 64)
    engine = SlotTokenEngine(small_t3(), 2)
    first, live = (engine.add(request(0, 60)) for _ in range(2))  # the second in the last slot
    engine.step((first, live))
    engine.step((first, live))
    while engine._requests[live].length < 64:
        engine.step((live,))
    engine.cancel(first)
    engine.cancel(live)
    assert int(engine._slots.state[:, 0].max()) == engine._slots.capacity == 64
    for number in (1, 2):
        live = engine.add(request(number))
        plain = SlotTokenEngine(small_t3(), 2)
        other = plain.add(request(number))
        for _ in range(5):
            assert engine.step((live,))[0].token == plain.step((other,))[0].token


@pytest.mark.slow
def test_forced_tokens_come_first_in_any_block() -> None:
    engine = SlotTokenEngine(small_t3(), 2)
    forced = tuple(range(100, 140))  # more than one block of noise
    live = engine.add(replace(request(1, 60), forced=forced))
    said = [engine.step((live,))[0].token for _ in range(45)]
    assert said[:40] == list(forced)
    free = SlotTokenEngine(small_t3(), 2)
    live = free.add(replace(request(1, 60), forced=tuple(said)))
    assert [free.step((live,))[0].token for _ in range(45)] == said


def test_a_request_that_was_cancelled_leaves_its_slot() -> None:
    engine = SlotTokenEngine(small_t3(), 1)
    for number in range(3):
        live = engine.add(request(number))
        engine.step((live,))
        engine.step((live,))
        engine.cancel(live)
    assert len(engine) == 0


@pytest.mark.slow
def test_a_whole_utterance_is_one_graph() -> None:
    from torch._dynamo.testing import CompileCounter  # seconds, which only this test needs

    counter = CompileCounter()
    torch._dynamo.reset()

    def compiled(step: SlotStep) -> Any:
        return torch.compile(step, backend=counter, fullgraph=True)

    def said(engine: SlotTokenEngine) -> list[TokenEvent]:
        live = [engine.add(request(number)) for number in range(3)]
        return [event for _ in range(20) for event in engine.step(live)]

    found = said(SlotTokenEngine(small_t3(), 4, compiled))
    assert counter.frame_count == 1
    assert found == said(SlotTokenEngine(small_t3(), 4))


def test_the_guard_in_slots_is_the_guard() -> None:
    """Rows of attention that were drawn, sure and unsure, moving and stuck."""
    rng, generator = random.Random(0), torch.Generator().manual_seed(0)
    n_text, n_slots, start = 14, 5, 3
    guards = [Guard(((0, 0), (1, 0)), n_text) for _ in range(n_slots)]
    state = SlotState(*(torch.zeros(n_slots, dtype=torch.int64) for _ in SlotState._fields))
    texts = torch.full((n_slots,), start), torch.full((n_slots,), start + n_text)
    fixed = SlotConfig(*texts, torch.ones(n_slots, dtype=torch.int64), torch.zeros(n_slots))
    sure = torch.tensor([guard.sure for guard in guards])
    n_kinds = {"over": 0, "under way": 0, "said": 0}
    where = [0] * n_slots
    for index in range(160):
        looks = 0.02 * torch.rand(2, n_slots, 40, generator=generator)
        for slot in range(n_slots):
            where[slot] = min(n_text - 1, where[slot] + (rng.random() < 0.15 + 0.1 * slot))
            looks[:, slot, start + where[slot]] += rng.choice((0.9, 0.9, 0.1))
        state = state._replace(n_tokens=torch.full((n_slots,), index))
        found = slots._Guarded.of(list(looks), state, fixed, sure)
        for slot, guard in enumerate(guards):
            guard._look(looks[:, slot, start : start + n_text])
            assert guard.counts == tuple(
                int(t[slot]) for t in (found.place, found.n_still, found.n_sure)
            )
            assert guard.is_said == bool(found.is_said[slot])
            assert guard._is_under_way == bool(found.is_under_way[slot])
            assert guard._is_over == bool(found.is_over[slot])
            n_kinds["over"] += guard._is_over
            n_kinds["under way"] += guard._is_under_way
            n_kinds["said"] += guard.is_said
        state = state._replace(place=found.place, n_still=found.n_still, n_sure=found.n_sure)
    assert min(n_kinds.values()) > 20, n_kinds


@pytest.mark.parametrize("top_k", [0, 1, 7, 10_000])
def test_top_k_of_rows_is_top_k(top_k: int) -> None:
    logits = torch.randn(3, 50, generator=torch.Generator().manual_seed(top_k))
    found = slots._keep_top_k(logits, torch.tensor([top_k, 3, 0]))
    assert torch.equal(found[2], logits[2])
    assert int(found[1].isfinite().sum()) == 3
    assert int(found[0].isfinite().sum()) == (min(top_k, 50) or 50)
