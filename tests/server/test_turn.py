"""What one utterance sends to the worker, and when, without a worker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np

from nightingale.server.admission import Admission, AdmissionLimits
from nightingale.server.turn import Turn
from nightingale.server.utterance import AHEAD, Utterance
from nightingale.server.worker_protocol import Message
from nightingale.server.worker_request import WorkerRequest


class Stage:
    """One slot, and a worker that only listens."""

    def __init__(self) -> None:
        self.sent: list[Message] = []
        self.admission = Admission(AdmissionLimits(n_running=1, max_factor=0.0))
        self._turns: dict[Utterance, Turn] = {}

    def turn(self, ask: WorkerRequest) -> Turn:
        turn = Turn(len(self._turns) + 1, ask, self.sent.append)
        self._turns[turn.utterance] = turn
        turn.reserve(self.admission, "", lambda it: self.sent.append(self._turns[it].asking()))
        turn.start()
        return turn

    @property
    def kinds(self) -> list[tuple[str, int]]:
        return [(message["kind"], message["id"]) for message in self.sent]


def whole(text: str = "Hello there.") -> WorkerRequest:
    return WorkerRequest({}, [text])


def arriving() -> WorkerRequest:
    return WorkerRequest({}, [], is_arriving=True, is_open=True)


def staged(check: Callable[[Stage], Any]) -> None:
    async def main() -> None:
        if asyncio.iscoroutine(result := check(Stage())):
            await result

    asyncio.run(main())


def on_audio(turn: Turn, n_samples: int) -> None:
    turn.utterance.on_audio(np.zeros(n_samples, np.float32))
    turn.check()


def test_the_worker_hears_of_an_utterance_with_its_first_text() -> None:
    def check(it: Stage) -> None:
        turn = it.turn(arriving())
        assert (it.sent, it.admission.n_running) == ([], 0)
        turn.utterance.put("")
        assert it.sent == []
        turn.utterance.put("Hello")
        assert it.kinds == [("speak", 1)]
        assert it.sent[0]["text"] == ["", "Hello"]
        turn.utterance.put(" there.")
        assert it.sent[1]["text"] == " there."

    staged(check)


def test_out_of_text_gives_the_slot_back_unless_more_is_under_way() -> None:
    def check(it: Stage) -> None:
        turn, other = it.turn(arriving()), None
        turn.utterance.put("Hello")
        turn.utterance.put(" there.")
        turn.note_idle(len("Hello"))  # written before the worker had the second piece
        assert turn.is_running
        turn.note_idle(len("Hello there."))
        assert not turn.is_running
        other = it.turn(whole())
        turn.utterance.put(" And more.")
        assert it.kinds[-1] == ("speak", 2), "held until there is a slot"
        other.close()
        assert it.sent[-1]["text"] == " And more."
        turn.note_idle(len("Hello there. And more."))
        turn.utterance.end()
        assert it.sent[-1]["is_last"]

    staged(check)


def test_a_reader_that_is_behind_gives_the_slot_back_and_goes_on_first() -> None:
    async def check(it: Stage) -> None:
        slow, other, new = it.turn(whole()), it.turn(whole()), it.turn(whole())
        on_audio(slow, AHEAD)
        assert (slow.is_running, other.is_running) == (False, True)
        assert await anext(aiter(slow.utterance)) is not None
        assert it.kinds == [("speak", 1), ("speak", 2)], "space is offered when there is a slot"
        other.close()
        assert slow.is_running and not new.is_running
        assert it.sent[-1] == {"kind": "allow", "id": 1, "n_samples": 2 * AHEAD}

    staged(check)


def test_a_slow_reader_needs_nothing_and_a_live_one_what_is_missing() -> None:
    async def check(it: Stage) -> None:
        turn = it.turn(whole("word " * 60))
        assert turn.demand().remaining_s > 10
        on_audio(turn, AHEAD)
        assert turn.demand().ahead_s == 8.0
        assert turn.demand().remaining_s > 5
        turn.utterance.clock.note(np.zeros(24, np.float32), -10.0)  # played, and nothing since
        assert turn.demand().remaining_s == 0.0

    staged(check)


def test_a_cancel_before_its_turn_ends_it_here() -> None:
    def check(it: Stage) -> None:
        first, second = it.turn(whole()), it.turn(whole())
        second.utterance.cancel()
        assert second.utterance.outcome is not None
        assert second.utterance.outcome.ending == "cancelled"
        first.utterance.cancel()
        assert it.kinds == [("speak", 1), ("cancel", 1)]
        assert it.admission.n_running == it.admission.n_queued == 0

    staged(check)


def test_after_a_death_only_who_has_a_slot_is_asked_again() -> None:
    def check(it: Stage) -> None:
        paused, running = it.turn(whole()), it.turn(whole())
        on_audio(paused, AHEAD)
        assert running.is_running
        assert (paused.on_worker_lost(), running.on_worker_lost()) == (False, True)
        assert not paused.is_at_worker
        it.sent.clear()
        it.sent.append(running.asking())
        running.close()
        assert it.kinds == [("speak", 2), ("cancel", 2)]
        paused.utterance.cancel()
        assert paused.utterance.outcome is not None

    staged(check)


def test_who_is_refused_hears_why() -> None:
    async def check(it: Stage) -> None:
        it.admission.limits = AdmissionLimits(n_running=1, n_queued=0, max_factor=0.0)
        it.turn(whole())
        refused = it.turn(whole())
        assert refused.utterance.outcome is not None
        refused.close()
        assert it.admission.n_open == 1

    staged(check)
