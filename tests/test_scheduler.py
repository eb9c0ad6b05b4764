"""Many requests share one model: fairly, and without a trace in the sound."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, cast

import numpy as np
import pytest
from numpy.typing import NDArray

from nightingale.backends.base import DecodedWindow, TokenEvent, TokenWindow, WaveState, WindowJob
from nightingale.core import AudioChunk, Plan
from nightingale.errors import BusyError, SpeechError
from nightingale.pipeline import Nightingale
from nightingale.scheduler import (
    FIRST_AUDIO_DEADLINE_S,
    MAX_BATCH,
    MAX_WINDOWS,
    Request,
    Scheduler,
)
from nightingale.speech import SpeechStream
from tests.tiny_release import Releases

CHUNK = AudioChunk(np.zeros(12_000, np.float32))  # half a second


class Told:
    """A speech of so many steps, every third with sound; notes when it is its turn."""

    def __init__(self, name: str, n_steps: int, turns: list[str], gate: threading.Event) -> None:
        self._name, self._left, self._turns, self._gate = name, n_steps, turns, gate
        self.is_cancelled = False

    @property
    def token_number(self) -> int | None:
        return None

    @property
    def window_job(self) -> WindowJob | None:
        return None

    def give(self, event: TokenEvent, spent_ms: float) -> None:  # noqa: ARG002
        raise AssertionError("it needs no token")

    def give_window(self, decoded: DecodedWindow) -> None:  # noqa: ARG002
        raise AssertionError("it needs no window")

    def step(self) -> AudioChunk | None:
        self._gate.wait(10)
        self._turns.append(self._name)
        if self._left == 0 or self.is_cancelled:
            raise StopIteration
        self._left -= 1
        return CHUNK if self._left % 3 == 0 else None

    def cancel(self) -> None:
        self.is_cancelled = True


class Listener:
    def __init__(self) -> None:
        self.chunks: list[AudioChunk] = []
        self.error: Exception | None = None
        self.is_over = threading.Event()

    def end(self, error: Exception | None) -> None:
        self.error = error
        self.is_over.set()


def admit(scheduler: Scheduler, speech: Told) -> tuple[Request, Listener]:
    listener = Listener()
    return scheduler.admit(speech, listener.chunks.append, listener.end), listener


def test_everybody_gets_everything() -> None:
    scheduler, gate = Scheduler(8), threading.Event()
    turns: list[str] = []
    listeners = [admit(scheduler, Told(f"{n}", 12, turns, gate))[1] for n in range(8)]
    with pytest.raises(BusyError, match="8 requests"):
        admit(scheduler, Told("one too many", 1, turns, gate))
    gate.set()
    scheduler.close()
    assert [len(listener.chunks) for listener in listeners] == [4] * 8
    assert all(listener.is_over.is_set() and listener.error is None for listener in listeners)
    with pytest.raises(BusyError, match="closing"):
        admit(scheduler, Told("too late", 1, turns, gate))


def test_time_counts_as_busy_only_while_a_step_is_computed() -> None:
    now, turns = [100.0], list[str]()

    class Slow(Told):
        def step(self) -> AudioChunk | None:
            now[0] += 2.0
            return super().step()

    scheduler, gate = Scheduler(2, clock=lambda: now[0]), threading.Event()
    gate.set()
    for _ in range(2):
        _, listener = admit(scheduler, Slow("slow", 3, turns, gate))
        assert listener.is_over.wait(10)
        while scheduler.step_s:
            time.sleep(0.001)
        now[0] += 50.0  # nobody is there
    scheduler.close()
    assert scheduler.busy_s == 2 * 4 * 2.0


def test_who_was_cancelled_goes_first_and_takes_no_place() -> None:
    """Its last step is short, and then its memory is free."""
    now = [100.0]
    scheduler, gate = Scheduler(2, clock=lambda: now[0]), threading.Event()
    turns: list[str] = []
    admit(scheduler, Told("first", 3, turns, gate))
    second, gone = admit(scheduler, Told("second", 900, turns, gate))
    with pytest.raises(BusyError, match="2 requests"):
        admit(scheduler, Told("third", 3, turns, gate))
    scheduler.cancel(second)
    admit(scheduler, Told("third", 3, turns, gate))
    gate.set()
    scheduler.close()
    assert gone.is_over.is_set()
    assert turns[:2] in (["first", "second"], ["second", "first"]), "one step was under way"


def test_a_request_from_a_checkpoint_counts_from_there() -> None:
    """Samples before the checkpoint are not made, those that the listener has are not given."""
    scheduler, gate, listener = Scheduler(1), threading.Event(), Listener()
    around: list[bool] = []
    gate.set()
    scheduler.admit(
        Told("resumed", 6, [], gate),  # two chunks of half a second
        listener.chunks.append,
        listener.end,
        n_skip=30_000,
        n_before=24_000,
        around=around.append,
    )
    scheduler.close()
    assert [len(chunk.samples) for chunk in listener.chunks] == [6_000, 12_000]
    assert around == [True, False] * 7


def test_who_starves_first_goes_first() -> None:
    """Time stands still: the clock says what the test says."""
    now = [100.0]
    scheduler, gate = Scheduler(8, clock=lambda: now[0]), threading.Event()
    turns: list[str] = []
    first, _ = admit(scheduler, Told("first", 9, turns, gate))
    now[0] += 0.1
    second, _ = admit(scheduler, Told("second", 9, turns, gate))
    assert first.deadline == pytest.approx(100 + FIRST_AUDIO_DEADLINE_S)
    assert second.deadline == pytest.approx(100.1 + FIRST_AUDIO_DEADLINE_S)
    gate.set()
    scheduler.close()
    # Sound for the first, half a second from 100.1 on; so it is due again just before the second,
    # and then the second until both have the same; ties go to who came first.
    assert turns[:3] == ["first"] * 3
    assert turns.index("second") in (3, 6)
    assert abs(turns[:18].count("first") - turns[:18].count("second")) <= 3


def test_a_broken_request_breaks_alone() -> None:
    scheduler, gate = Scheduler(8), threading.Event()
    turns: list[str] = []

    class Broken(Told):
        def step(self) -> AudioChunk | None:
            raise SpeechError("no")

    _, bad = admit(scheduler, Broken("bad", 3, turns, gate))
    _, good = admit(scheduler, Told("good", 6, turns, gate))
    gate.set()
    scheduler.close()
    assert isinstance(bad.error, SpeechError)
    assert good.error is None
    assert len(good.chunks) == 2


def test_nothing_is_heard_after_a_cancel() -> None:
    scheduler, gate = Scheduler(8), threading.Event()
    turns: list[str] = []
    request, listener = admit(scheduler, Told("it", 300, turns, gate))
    scheduler.cancel(request)
    gate.set()
    assert listener.is_over.wait(10)
    assert listener.chunks == []
    assert len(turns) <= 2
    scheduler.close()


def test_who_has_no_room_is_not_computed_for() -> None:
    scheduler, gate = Scheduler(8), threading.Event()
    turns: list[str] = []
    gate.set()
    listener, n_chunk = Listener(), len(CHUNK.samples)
    request = scheduler.admit(
        Told("slow", 9, turns, gate), listener.chunks.append, listener.end, n_allowed=n_chunk
    )
    _, other = admit(scheduler, Told("other", 9, turns, gate))
    assert other.is_over.wait(10)
    assert len(listener.chunks) == 1
    scheduler.allow(request, n_chunk)  # again: nothing new
    assert not listener.is_over.wait(0.05)
    scheduler.allow(request, 10 * n_chunk)
    assert listener.is_over.wait(10)
    assert len(listener.chunks) == 3
    scheduler.close()


def test_who_waits_for_text_costs_nothing_and_can_be_cancelled() -> None:
    scheduler, gate = Scheduler(8), threading.Event()
    turns: list[str] = []
    gate.set()
    has_text, listener = threading.Event(), Listener()
    speech = Told("it", 3, turns, gate)
    scheduler.admit(speech, listener.chunks.append, listener.end, is_ready=has_text.is_set)
    assert not listener.is_over.wait(0.05)
    assert turns == []
    has_text.set()
    scheduler.wake()
    assert listener.is_over.wait(10)
    never = Listener()
    waiting = scheduler.admit(
        Told("never", 3, turns, gate), never.chunks.append, never.end, is_ready=lambda: False
    )
    scheduler.cancel(waiting)
    assert never.is_over.wait(10)
    scheduler.close()


@pytest.mark.parametrize("n_skip", [0, 1, 11_999, 12_000, 12_001, 30_000, 48_000])
def test_what_was_heard_before_is_not_given_again(n_skip: int) -> None:
    scheduler, gate = Scheduler(1), threading.Event()
    gate.set()
    listener = Listener()
    speech = Told("it", 12, [], gate)
    scheduler.admit(speech, listener.chunks.append, listener.end, n_skip=n_skip)
    scheduler.close()
    assert sum(len(chunk.samples) for chunk in listener.chunks) == 48_000 - n_skip
    assert all(len(chunk.samples) for chunk in listener.chunks)


class Talker:
    """A speech that needs so many tokens, and makes sound of every third; `tokens` notes them."""

    def __init__(self, number: int, n_tokens: int) -> None:
        self._number, self._left = number, n_tokens
        self.tokens: list[TokenEvent] = []
        self.is_cancelled = False

    @property
    def token_number(self) -> int | None:
        return self._number if self._left and not self.is_cancelled else None

    @property
    def window_job(self) -> WindowJob | None:
        return None

    def give(self, event: TokenEvent, spent_ms: float) -> None:
        assert spent_ms >= 0
        self.tokens.append(event)

    def give_window(self, decoded: DecodedWindow) -> None:  # noqa: ARG002
        raise AssertionError("it needs no window")

    def step(self) -> AudioChunk | None:
        if self._left == 0 or self.is_cancelled:
            raise StopIteration
        if self.tokens and self.tokens[-1].error:
            raise self.tokens[-1].error
        self._left -= 1
        return CHUNK if self._left % 3 == 0 else None

    def cancel(self) -> None:
        self.is_cancelled = True


class Engine:
    """Notes its batches; the first one waits until all requests are there."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []
        self.gate = threading.Event()
        self.failure: Exception | None = None

    def step(self, numbers: Sequence[int]) -> list[TokenEvent]:
        self.gate.wait(10)
        self.batches.append(list(numbers))
        if self.failure is not None:
            raise self.failure
        return [TokenEvent(number, 1, None, is_last=False) for number in numbers]


def talk(
    engine: Engine, n_talkers: int, now: Callable[[], float] = time.monotonic
) -> tuple[Scheduler, list[Talker], list[Listener]]:
    """So many, admitted while another one holds the model."""
    scheduler, held = Scheduler(32, engine.step, clock=now), threading.Event()
    admit(scheduler, Told("holds the model", 0, [], held))
    talkers = [Talker(number, 6) for number in range(n_talkers)]
    listeners = [Listener() for _ in talkers]
    for talker, listener in zip(talkers, listeners, strict=True):
        scheduler.admit(talker, listener.chunks.append, listener.end)
    engine.gate.set()
    held.set()
    return scheduler, talkers, listeners


def test_tokens_of_all_who_need_one_are_computed_together() -> None:
    engine = Engine()
    scheduler, talkers, listeners = talk(engine, 5)
    scheduler.close()
    assert sorted(engine.batches[0]) == [0, 1, 2, 3, 4]
    assert len(engine.batches) == 6
    assert all(len(listener.chunks) == 2 and listener.error is None for listener in listeners)
    for number, talker in enumerate(talkers):
        assert [event.number for event in talker.tokens] == [number] * 6


def test_a_batch_is_bounded() -> None:
    engine = Engine()
    scheduler, _, listeners = talk(engine, MAX_BATCH + 3)
    scheduler.close()
    assert max(map(len, engine.batches)) == MAX_BATCH
    assert all(len(listener.chunks) == 2 for listener in listeners)


def test_who_is_due_much_later_does_not_delay_the_first() -> None:
    now, engine, listener = [100.0], Engine(), Listener()
    engine.gate.set()
    scheduler, held = Scheduler(8, engine.step, clock=lambda: now[0]), threading.Event()
    admit(scheduler, Told("holds the model", 0, [], held))
    late = Talker(1, 3)
    request = scheduler.admit(late, listener.chunks.append, listener.end)
    request.first_at, request.n_samples = 100.0, 3 * 24_000  # three seconds are there
    scheduler.admit(Talker(2, 3), listener.chunks.append, listener.end)
    scheduler.admit(Talker(3, 3), listener.chunks.append, listener.end)
    held.set()
    scheduler.close()
    assert engine.batches[:3] == [[2, 3]] * 3
    assert late.tokens == [], "alone, it computes its own tokens"


def test_all_who_are_late_are_computed_together() -> None:
    """However much later than the others: else the latest would be computed alone."""
    now, engine, listener = [100.0], Engine(), Listener()
    engine.gate.set()
    scheduler, held = Scheduler(8, engine.step, clock=lambda: now[0]), threading.Event()
    admit(scheduler, Told("holds the model", 0, [], held))
    for number in range(3):
        scheduler.admit(Talker(number, 3), listener.chunks.append, listener.end)
        now[0] += 10
    held.set()
    scheduler.close()
    assert engine.batches == [[0, 1, 2]] * 3


def test_who_is_suspected_is_computed_alone() -> None:
    engine, listener = Engine(), Listener()
    engine.gate.set()
    scheduler, held = Scheduler(8, engine.step), threading.Event()
    admit(scheduler, Told("holds the model", 0, [], held))
    around: list[bool] = []
    for number in range(3):
        is_alone = number == 1
        more = around.append if is_alone else lambda _is_begun: None
        talker = Talker(number, 3)
        scheduler.admit(
            talker, listener.chunks.append, listener.end, around=more, is_alone=is_alone
        )
    held.set()
    scheduler.close()
    assert len(listener.chunks) == 3
    assert all(1 not in batch for batch in engine.batches)
    assert around == [True, False] * 4


def test_a_batch_that_fails_fails_all_of_it_and_nobody_else() -> None:
    engine = Engine()
    engine.failure = RuntimeError("out of memory")
    scheduler, _, listeners = talk(engine, 3)
    _, other = admit(scheduler, Told("other", 3, [], engine.gate))
    scheduler.close()
    assert all(listener.error is engine.failure for listener in listeners)
    assert other.error is None and len(other.chunks) == 1


class Windower(Told):
    """A speech that needs one window of so many tokens."""

    def __init__(self, n_tokens: int, *, is_last: bool = False) -> None:
        super().__init__("", 1, [], threading.Event())
        self._gate.set()
        self._job = WindowJob(TokenWindow([0] * n_tokens, is_last), cast(WaveState, self))
        self.given: list[DecodedWindow] = []

    @property
    def window_job(self) -> WindowJob | None:
        return self._job if self._left and not self.is_cancelled else None

    def give_window(self, decoded: DecodedWindow) -> None:
        self.given.append(decoded)


def decode_sizes(
    speeches: Sequence[Windower], failure: Exception | None = None
) -> tuple[list[list[int]], list[Listener]]:
    """Sizes of the windows that were decoded together; whoever was alone decodes its own."""
    batches, held = list[list[int]](), threading.Event()

    def decode(jobs: Sequence[WindowJob]) -> list[DecodedWindow]:
        batches.append([len(job.window.tokens) for job in jobs])
        if failure is not None:
            raise failure
        return [DecodedWindow(CHUNK.samples, job.state, 1.0, 1.0) for job in jobs]

    scheduler = Scheduler(32, decode_windows=decode)
    admit(scheduler, Told("holds the model", 0, [], held))
    listeners = [admit(scheduler, speech)[1] for speech in speeches]
    held.set()
    scheduler.close()
    return batches, listeners


def test_windows_of_one_size_are_decoded_together() -> None:
    speeches = [Windower(size) for size in (11, 15, 11, 15, 11, 28)]
    last = Windower(11, is_last=True)
    batches, listeners = decode_sizes([*speeches, last])
    assert sorted(batches) == [[11] * 3, [15] * 2]
    assert [len(speech.given) for speech in (*speeches, last)] == [1] * 5 + [0, 0]
    assert all(len(listener.chunks) == 1 for listener in listeners)


def test_a_batch_of_windows_is_bounded() -> None:
    batches, _ = decode_sizes([Windower(11) for _ in range(2 * MAX_WINDOWS)])
    assert batches == [[11] * MAX_WINDOWS] * 2


def test_windows_that_fail_fail_all_of_their_batch_and_nobody_else() -> None:
    failure = RuntimeError("out of memory")
    _, listeners = decode_sizes([Windower(11), Windower(11), Windower(15)], failure)
    assert [listener.error for listener in listeners] == [failure, failure, None]


@pytest.mark.slow
@pytest.mark.parametrize("t3", ["fp32", "int8"])
def test_real_requests_beside_each_other_sound_as_alone(
    releases: Releases, tmp_path: Path, t3: Literal["fp32", "int8"]
) -> None:
    sizes_of = {"window_slots": 0, "window_sizes": (4, 6, 10), "vocoder_lookahead": 6}
    live = Plan("live", t3=t3, prompt_cache=True, **sizes_of)  # type: ignore[arg-type]
    model = Nightingale.load(releases("multilingual-hi"), home=tmp_path, device="cpu", plan=live)

    def joined(chunks: list[AudioChunk]) -> NDArray[np.float32]:
        return np.concatenate([chunk.samples for chunk in chunks])

    def spoken(seed: int) -> SpeechStream:
        return model.stream("It is me.", seed=seed, max_tokens=50)

    alone = [joined(list(spoken(seed))) for seed in range(4)]
    sizes, n_windows = list[int](), list[int]()
    listeners = [Listener() for _ in range(4)]

    def step_tokens(numbers: Sequence[int]) -> list[TokenEvent]:
        sizes.append(len(numbers))
        return model.step_tokens(numbers)

    def decode_windows(jobs: Sequence[WindowJob]) -> list[DecodedWindow]:
        n_windows.append(len(jobs))
        return model.decode_windows(jobs)

    # who is due does not depend on speed
    scheduler = Scheduler(4, step_tokens, decode_windows, clock=lambda: 0.0)
    for seed, listener in enumerate(listeners):
        scheduler.admit(spoken(seed), listener.chunks.append, listener.end)
    scheduler.close()
    for listener, one in zip(listeners, alone, strict=True):
        assert listener.error is None
        assert np.array_equal(joined(listener.chunks), one)
    assert max(sizes) > 2, f"nobody shared a step: {sizes}"
    assert max(n_windows) > 2, f"nobody shared a window: {n_windows}"
