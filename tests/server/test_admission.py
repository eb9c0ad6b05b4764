"""Slots, queue and refusals, without a server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from nightingale.errors import BusyError
from nightingale.server.admission import Admission, AdmissionLimits, Slot, State
from nightingale.server.load import Demand, is_feasible

LONG = Demand(2.0, 1000.0)


@dataclass
class Heard:
    """What became of the utterances, by their names."""

    admission: Admission
    granted: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    demands: dict[str, Demand] = field(default_factory=dict)

    def open(self, name: str, owner: str = "", **named: bool) -> Slot:
        return self.admission.open(
            owner,
            lambda: self.demands.get(name, LONG),
            lambda: self.granted.append(name),
            lambda _error: self.refused.append(name),
            **named,
        )

    def ask(self, name: str, owner: str = "", **named: bool) -> Slot:
        slot = self.open(name, owner, **named)
        slot.request()
        return slot


def admitting(check: Callable[[Heard], Any], factor: float | None = None, **limits: Any) -> None:
    async def main() -> None:
        known = {"max_factor": 0.0} if factor is None else {}
        admission = Admission(
            AdmissionLimits(**known | limits), lambda n: None if factor is None else n * factor
        )
        if asyncio.iscoroutine(result := check(Heard(admission))):
            await result

    asyncio.run(main())


def test_a_paused_utterance_holds_no_slot_and_goes_on_before_new_ones() -> None:
    def check(it: Heard) -> None:
        first, _second = it.ask("first"), it.ask("second")
        it.ask("new")
        first.release()  # it waits for text
        assert it.granted == ["first", "second", "new"]
        it.ask("newer")
        first.request()
        assert it.granted == ["first", "second", "new"]
        _second.close()
        assert it.granted[-1] == "first"
        assert (it.admission.n_running, it.admission.n_queued) == (2, 1)

    admitting(check, n_running=2)


def test_what_is_open_without_text_costs_no_slot() -> None:
    def check(it: Heard) -> None:
        silent = [it.open(f"silent {n}", f"owner {n}") for n in range(8)]
        it.ask("speaks")
        assert it.granted == ["speaks"]
        assert it.admission.n_paused == 8
        for slot in silent:
            slot.close()
        assert (it.admission.n_open, it.admission.n_running) == (1, 1)

    admitting(check, n_running=1, n_open=9)


def test_open_utterances_are_limited_in_all_and_for_each_owner() -> None:
    def check(it: Heard) -> None:
        for n in range(6):
            it.open(f"a{n}", "a")
        with pytest.raises(BusyError, match="6 utterances are open, 6 of them yours"):
            it.open("a6", "a")
        for n in range(2):
            it.open(f"b{n}", "b")
        with pytest.raises(BusyError, match="8 utterances are open"):
            it.open("c", "c")
        it.ask("canary", is_reserved=True)
        assert it.granted == ["canary"]

    admitting(check, n_running=1, n_open=8)


def test_owners_take_turns_and_one_keeps_a_slot_free_for_others() -> None:
    def check(it: Heard) -> None:
        slots = [it.ask(f"a{n}", "a") for n in range(5)]
        assert it.granted == ["a0", "a1"], "two of three slots at most"
        it.ask("b0", "b")
        it.ask("b1", "b")
        assert it.granted == ["a0", "a1", "b0"]
        for slot in slots[:2]:
            slot.close()
        assert it.granted == ["a0", "a1", "b0", "a2", "b1"]

    admitting(check, n_running=3, n_running_per_owner=2, n_open=30)


def test_a_full_queue_refuses_the_newest_of_who_has_most_in_it() -> None:
    def check(it: Heard) -> None:
        it.ask("runs")
        for n in range(4):
            it.ask(f"a{n}", "a")
        it.ask("a4", "a")
        assert it.refused == ["a4"]
        it.ask("b0", "b")
        assert it.refused == ["a4", "a3"]
        assert it.admission.n_queued == 4
        assert it.admission.n_rejected == 2

    admitting(check, n_running=1, n_queued=4, n_open=30)


def test_waiting_in_the_queue_has_a_deadline() -> None:
    async def check(it: Heard) -> None:
        runs, waits = it.ask("runs"), it.ask("waits")
        paused = it.ask("paused")
        paused.close()
        await asyncio.sleep(0.2)
        assert it.refused == ["waits"]
        assert waits.state is State.PAUSED
        runs.close()
        assert it.granted == ["runs"]

    admitting(check, n_running=1, queue_s=0.05)


def test_an_utterance_that_leaves_the_queue_is_forgotten() -> None:
    def check(it: Heard) -> None:
        runs, waits = it.ask("runs"), it.ask("waits")
        waits.close()
        waits.close()
        runs.close()
        assert (it.granted, it.admission.n_open) == (["runs"], 0)

    admitting(check, n_running=1)


def test_a_closed_server_takes_nobody_but_who_waits_gets_a_turn() -> None:
    def check(it: Heard) -> None:
        runs = it.ask("runs")
        it.ask("waits")
        it.admission.close()
        with pytest.raises(BusyError, match="shutting down"):
            it.open("new")
        runs.close()
        assert it.granted == ["runs", "waits"]

    admitting(check, n_running=1)


def test_new_streams_are_admitted_while_the_predicted_factor_allows_it() -> None:
    def check(it: Heard) -> None:
        for n in range(5):
            it.ask(str(n))
        assert it.granted == ["0", "1", "2"], "3 x 0.29 < 0.9 < 4 x 0.29"

    admitting(check, 0.29)


def test_one_stream_is_always_admitted_and_a_second_when_speed_is_known() -> None:
    def check(it: Heard) -> None:
        first = it.ask("first")
        it.ask("second")
        assert it.granted == ["first"]
        first.close()
        assert it.granted == ["first", "second"]

    admitting(check, 3.0)
    admitting(check, None, max_factor=0.9)


def test_a_short_text_fits_beside_a_stream_that_is_ahead() -> None:
    async def check(it: Heard) -> None:
        it.demands |= {"reads": Demand(0.5, 500.0), "bell": Demand(0.0, 2.0)}
        it.ask("reads")
        it.ask("bell")
        assert it.granted == ["reads"]
        it.demands["reads"] = Demand(10.0, 300.0)
        await asyncio.sleep(0.3)
        assert it.granted == ["reads", "bell"]

    admitting(check, 0.6)


def test_a_stream_that_needs_nothing_now_does_not_count() -> None:
    def check(it: Heard) -> None:
        it.demands["slow"] = Demand(8.0, 0.0)
        it.ask("slow")
        it.ask("new")
        assert it.granted == ["slow", "new"]

    admitting(check, 0.6)


def test_feasibility_is_the_sum_of_factors_for_long_streams() -> None:
    assert is_feasible([LONG] * 2, LONG, 0.29, 0.9)
    assert not is_feasible([LONG] * 3, LONG, 0.29, 0.9)
    assert is_feasible([], Demand(0.0, 1.0), 0.9, 0.9)
    # Two that are ahead can be slower for a while, but not for ever.
    assert is_feasible([Demand(8.0, 8.0)], Demand(8.0, 8.0), 0.9, 0.9)
    assert not is_feasible([Demand(8.0, 80.0)], Demand(8.0, 80.0), 0.9, 0.9)


def test_faster_speech_takes_more_of_the_time() -> None:
    fast, slow = LONG._replace(speed=2.0), LONG._replace(speed=0.5)
    assert not is_feasible([LONG, fast], LONG, 0.29, 0.9)
    assert is_feasible([slow, slow, LONG], LONG, 0.29, 0.9)


def test_a_stream_that_has_just_begun_is_not_delayed_by_a_new_one() -> None:
    assert not is_feasible([Demand(0.3, 2.0)], Demand(0.0, 2.0), 0.2, 0.9)
    assert is_feasible([Demand(0.5, 2.0)], Demand(0.0, 2.0), 0.2, 0.9)


def test_streams_that_are_due_at_the_same_time_need_a_step_each() -> None:
    due = Demand(0.5, 2.0)
    assert is_feasible([due], Demand(0.0, 2.0), 0.2, 0.9)
    assert not is_feasible([due, due], Demand(0.0, 2.0), 0.2, 0.9)
    assert is_feasible([due, Demand(0.7, 2.0)], Demand(0.0, 2.0), 0.2, 0.9)
