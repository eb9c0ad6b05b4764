"""How streams are held back in the front, by a clock that only moves when nobody has work."""

from __future__ import annotations

import asyncio
import random
import selectors
from collections.abc import Callable, Coroutine
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from nightingale.core import SAMPLES_PER_SECOND, Word
from nightingale.prebuffer import Prebuffer
from nightingale.server.utterance import Outcome, Utterance
from nightingale.server.worker_request import WorkerRequest
from tests.test_prebuffer import Chunks, gaps, schedule, start

Samples = NDArray[np.float32]


class _Selector(selectors.DefaultSelector):
    """Does not wait: moves the clock of its loop instead."""

    now = 0.0

    def select(self, timeout: float | None = None) -> Any:
        self.now += timeout or 0.0
        return super().select(0)


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._clock = _Selector()
        super().__init__(self._clock)

    def time(self) -> float:
        return self._clock.now


def run(main: Coroutine[Any, Any, Any]) -> Any:
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main)


def sound(seconds: float, level: float = 0.5) -> Samples:
    return np.full(round(seconds * SAMPLES_PER_SECOND), level, np.float32)


def utter(text: str, *, is_open: bool = False) -> Utterance:
    ask = WorkerRequest({}, [text], is_arriving=is_open, is_open=is_open)
    return Utterance(1, ask, lambda _message: None, asyncio.get_running_loop().time)


async def make(utterance: Utterance, chunks: Chunks, level: float = 0.5) -> None:
    """A worker that is done with each chunk at its time."""
    loop = asyncio.get_running_loop()
    for at, length_s in chunks:
        await asyncio.sleep(max(0.0, at - loop.time()))
        utterance.on_audio(sound(length_s, level))
    utterance.finish(Outcome("stop", utterance.n_received))


async def listen(utterance: Utterance, max_wait_s: float) -> Chunks:
    loop, heard = asyncio.get_running_loop(), []
    async for event in utterance.paced(max_wait_s):
        if isinstance(event, np.ndarray):
            heard.append((loop.time(), len(event) / SAMPLES_PER_SECOND))
    return heard


async def stream(
    rtf: float, chunks: Chunks, *, known: float | None, max_wait_s: float = 10.0, level: float = 0.5
) -> tuple[Utterance, Chunks]:
    seconds = sum(length_s for _, length_s in chunks)
    utterance = utter("x" * round(15 * seconds))
    utterance.prebuffer = Prebuffer(known)
    heard, _ = await asyncio.gather(
        listen(utterance, max_wait_s), make(utterance, chunks, level=level)
    )
    return utterance, heard


@pytest.mark.parametrize("rtf", [0.2, 0.9, 0.99, 1.3])
def test_it_starts_when_the_arithmetic_says_so(rtf: float) -> None:
    rng = random.Random(1)
    for _ in range(10):
        seconds = float(rng.randint(1, 20))
        chunks = schedule(rtf, seconds, rng)
        utterance, heard = run(stream(rtf, chunks, known=rtf, max_wait_s=60.0))
        assert heard[0][0] == pytest.approx(
            start(chunks, Prebuffer(rtf), utterance.parts_s), abs=1e-3
        )
        assert sum(length_s for _, length_s in heard) == pytest.approx(seconds, abs=1e-3)
        assert utterance.clock.gaps_s == []
        assert gaps(chunks, heard[0][0] + 1e-4) == []


def test_a_voice_agent_does_not_wait() -> None:
    """The server is fast and knows it: the first chunk is given when it is there."""
    chunks = schedule(0.3, 8.0, random.Random(2), first_s=0.44)
    utterance, heard = run(stream(0.3, chunks, known=0.3))
    assert heard[0][0] == chunks[0][0]
    assert utterance.prebuffer_s == 0
    assert utterance.clock.first_s == pytest.approx(chunks[0][0])


def test_gaps_are_counted_where_the_cap_bites() -> None:
    chunks = schedule(2.0, 30.0, random.Random(3))
    utterance, heard = run(stream(2.0, chunks, known=2.0, max_wait_s=5.0))
    assert heard[0][0] == pytest.approx(chunks[0][0] + 5.0)
    true = gaps(chunks, heard[0][0])
    assert utterance.report["gaps"] == len([gap for gap in true if gap > 0.1]) > 5
    assert utterance.report["gap_seconds"] == pytest.approx(sum(true), abs=0.5)
    assert utterance.prebuffer_s == pytest.approx(5.0)


def test_prebuffering_can_be_turned_off() -> None:
    chunks = schedule(2.0, 10.0, random.Random(4))
    utterance, heard = run(stream(2.0, chunks, known=2.0, max_wait_s=0.0))
    assert heard[0][0] == chunks[0][0]
    assert utterance.report["gaps"] > 0


def test_leading_silence_is_held_and_first_audio_is_audible() -> None:
    async def main() -> Utterance:
        utterance = utter("x" * 15)
        utterance.prebuffer = Prebuffer(0.1)
        quiet, then = sound(0.06, 0.001), sound(0.5)
        then[:2400] = 0.001

        async def worker() -> None:
            await asyncio.sleep(0.3)
            utterance.on_audio(quiet)
            await asyncio.sleep(0.2)
            utterance.on_audio(then)
            utterance.finish(Outcome("stop", utterance.n_received))

        heard, _ = await asyncio.gather(listen(utterance, 0.0), worker())
        assert [at for at, _ in heard] == pytest.approx([0.5, 0.5])
        return utterance

    utterance = run(main())
    assert utterance.clock.first_s == pytest.approx(0.5 + 0.06 + 0.1)
    assert utterance.timing == "first-audio;dur=660.0, prebuffer;dur=200.0"


def test_silence_is_not_held_for_ever() -> None:
    chunks = schedule(0.1, 5.0, random.Random(5))
    utterance, heard = run(stream(0.1, chunks, known=0.1, level=0.001))
    assert heard[0][0] < 2.0
    assert utterance.clock.first_s is None
    assert "first-audio" not in utterance.timing


def test_text_that_is_not_written_is_not_waited_for() -> None:
    """A slow machine, a whole sentence, and the beginning of one that does not go on."""

    async def main() -> float:
        utterance = utter("Yes. " + "But I am not sure whether this will ever " * 3, is_open=True)
        utterance.prebuffer = Prebuffer(2.0)
        listening = asyncio.create_task(listen(utterance, 10.0))
        await asyncio.sleep(1.0)
        utterance.on_audio(sound(0.4))  # all that there is to say so far
        await asyncio.sleep(60.0)
        utterance.end()
        utterance.finish(Outcome("stop", utterance.n_received))
        return float((await listening)[0][0])

    assert run(main()) == pytest.approx(1.0)


def test_time_zero_is_the_first_piece_of_text() -> None:
    async def main() -> float | None:
        utterance = Utterance(
            1,
            WorkerRequest({}, [], True, True),
            lambda _message: None,
            asyncio.get_running_loop().time,
        )
        await asyncio.sleep(5.0)  # started early, and written later
        utterance.put("Hello. ")
        await asyncio.gather(listen(utterance, 10.0), make(utterance, [(5.7, 0.5)]))
        return utterance.clock.first_s

    assert run(main()) == pytest.approx(0.7)


def held(act: Callable[[Utterance], None]) -> tuple[Utterance, list[Any]]:
    """What is given, if something happens while two chunks are held back."""

    async def main() -> tuple[Utterance, list[Any]]:
        utterance = utter("x" * 600)
        utterance.prebuffer = Prebuffer(2.0)

        async def take() -> list[Any]:
            return [event async for event in utterance.paced(10.0)]

        listening = asyncio.create_task(take())
        utterance.on_audio(sound(0.3))
        utterance.on_words(0, [Word("one", 0.0, 0.2)])
        await asyncio.sleep(0.5)
        utterance.on_audio(sound(0.5))
        await asyncio.sleep(0.5)
        assert not listening.done()
        act(utterance)
        return utterance, await listening

    got: tuple[Utterance, list[Any]] = run(main())
    return got


def test_the_end_gives_everything_in_order() -> None:
    utterance, events = held(lambda it: it.finish(Outcome("stop", it.n_received)))
    assert [type(event) for event in events] == [np.ndarray, list, np.ndarray]
    assert utterance.n_given == utterance.n_received


def test_a_cancel_gives_no_sound_but_the_words() -> None:
    def cancel(utterance: Utterance) -> None:
        utterance.cancel()
        utterance.finish(Outcome("cancelled", utterance.n_received))

    utterance, events = held(cancel)
    assert events == [[Word("one", 0.0, 0.2)]]
    assert utterance.n_given == 0


def test_only_time_spent_on_making_is_a_measure() -> None:
    async def main() -> list[tuple[float, float] | None]:
        utterance, measured = utter("x"), []

        async def on_audio(after_s: float, idle_s: float = 0.0) -> None:
            await asyncio.sleep(after_s)
            measured.append(utterance.on_audio(sound(0.5), idle_s))

        await on_audio(1.0)
        await on_audio(0.2)
        await on_audio(0.3)  # reports the one before
        await on_audio(2.0, idle_s=1.9)
        utterance.on_worker_lost()
        await on_audio(9.0)
        await on_audio(0.1)
        return measured

    first, second, third, fourth, fifth, sixth = run(main())
    assert first is second is None
    assert third == pytest.approx((0.2, 0.5))
    assert fourth == pytest.approx((0.3, 0.5))
    assert fifth == pytest.approx((0.1, 0.5))
    assert sixth is None  # its worker was lost
