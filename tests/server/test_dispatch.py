"""ServerContext and worker without HTTP: a worker that dies costs a pause, and nothing else."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from nightingale.core import Word
from nightingale.errors import BusyError, OptionError, TextError
from nightingale.server import heartbeat, link
from nightingale.server.dispatch import Dispatcher, Limits
from nightingale.server.supervisor import Supervisor, WorkerConfig
from nightingale.server.utterance import AHEAD, Utterance
from nightingale.server.worker_request import WorkerRequest
from nightingale.text.split import CUT
from tests.server.conftest import Solo, Subject
from tests.server.running import quick_decoder

pytestmark = pytest.mark.slow

TEXT = "The quick brown fox jumps over the lazy dog."
Samples = NDArray[np.float32]


class Running:
    """A dispatcher with its worker, and the request that all tests make."""

    def __init__(self, dispatcher: Dispatcher, options: dict[str, Any]) -> None:
        self.dispatcher, self._options = dispatcher, options

    def ask(self, text: str = TEXT, **options: Any) -> WorkerRequest:
        return WorkerRequest({**self._options, **options}, [text])

    async def speak(self, ask: WorkerRequest) -> Samples:
        async with self.dispatcher.speak(ask) as utterance:
            return await sound(utterance)


async def sound(utterance: Utterance) -> Samples:
    return np.concatenate([event async for event in utterance if isinstance(event, np.ndarray)])


@asynccontextmanager
async def running(subject: Subject, folder: Path, limits: Limits) -> AsyncIterator[Running]:
    config = WorkerConfig(
        folder,
        str(subject.folder),
        decoder=quick_decoder(subject.folder),
        threads=1,
        max_requests=limits.n_at_worker,
    )
    dispatcher = Dispatcher(Supervisor(config, folder), limits)
    await dispatcher.start()
    try:
        yield Running(dispatcher, subject.options)
    finally:
        await dispatcher.stop(drain_s=1)


Check = Callable[[Running], Coroutine[Any, Any, None]]


@pytest.fixture
def run(subject: Subject, tmp_path: Path) -> Callable[..., None]:
    def go(check: Check, **limits: Any) -> None:
        async def main() -> None:
            many = {"max_factor": 0.0, **limits}  # beside each other, on a slow machine, too
            async with running(subject, tmp_path, Limits(**many)) as it:
                await check(it)

        asyncio.run(main())

    return go


@pytest.fixture(scope="module")
def shared(
    subject: Subject, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[Check], None]]:
    """One worker for all tests that leave a worker behind.

    Its event loop runs in a thread of its own, between the tests too: heartbeats go on.
    """
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def wait_for(work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, loop).result()

    context = running(subject, tmp_path_factory.mktemp("worker"), Limits(max_factor=0.0))
    it = wait_for(context.__aenter__())
    try:
        yield lambda check: wait_for(check(it))
    finally:
        wait_for(context.__aexit__(None, None, None))
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def test_concurrent_requests_have_the_samples_of_each_alone(
    shared: Callable[[Check], None], solo: Solo
) -> None:
    async def check(it: Running) -> None:
        asks = [it.ask(f"{TEXT} Number {n}.", seed=n) for n in range(4)]
        for n, spoken in enumerate(await asyncio.gather(*map(it.speak, asks))):
            assert np.array_equal(spoken, solo(f"{TEXT} Number {n}.", seed=n))

    shared(check)


def test_streams_go_on_to_the_sample_when_their_worker_is_killed(
    shared: Callable[[Check], None], solo: Solo
) -> None:
    """Killed twice under three streams; no chunk is heard twice."""

    async def check(it: Running) -> None:
        supervisor = it.dispatcher.supervisor
        n_deaths, n_resumed = supervisor.n_deaths, it.dispatcher.n_resumed
        n_chunks = [0] * 3

        async def listen(n: int) -> Samples:
            heard: list[Samples] = []
            async with it.dispatcher.speak(it.ask(f"{TEXT} Number {n}.", seed=n)) as utterance:
                async for event in utterance:
                    if isinstance(event, np.ndarray):
                        heard.append(event)
                        n_chunks[n] += 1
                assert utterance.outcome is not None
                assert utterance.outcome.n_samples == sum(map(len, heard))
            return np.concatenate(heard)

        listeners = [asyncio.create_task(listen(n)) for n in range(3)]
        for n_least in (1, 2):
            while min(n_chunks) < n_least:
                await asyncio.sleep(0.005)
            pid = supervisor.pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
            while supervisor.pid in (None, pid):
                await asyncio.sleep(0.01)
        for n, spoken in enumerate(await asyncio.gather(*listeners)):
            assert np.array_equal(spoken, solo(f"{TEXT} Number {n}.", seed=n))
        assert supervisor.n_deaths == n_deaths + 2
        assert it.dispatcher.n_resumed >= n_resumed + 4  # all of the first time, some of the second

    shared(check)


# Found first by the Python of every worker; the first one then sticks in its fourth step.
STUCK = """
import pathlib, time
from nightingale.scheduler import Scheduler

class Sticky:
    def __init__(self, speech):
        self.speech, self.left = speech, 3

    def step(self):
        self.left -= 1
        if self.left < 0:
            time.sleep(600)
        return self.speech.step()

    def __getattr__(self, name):
        return getattr(self.speech, name)

def admit(self, speech, *given, **named):
    mark = pathlib.Path(__file__).with_name("mark")
    if not mark.exists():
        mark.touch()
        speech = Sticky(speech)
    return usual(self, speech, *given, **named)

usual, Scheduler.admit = Scheduler.admit, admit
"""


def test_a_worker_that_is_stuck_is_a_pause(
    run: Callable[..., None], solo: Solo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(STUCK)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(heartbeat, "PING_S", 0.5)
    monkeypatch.setattr(link, "_STUCK_S", 3.0)

    async def check(it: Running) -> None:
        assert np.array_equal(await it.speak(it.ask()), solo(TEXT))
        assert it.dispatcher.supervisor.n_deaths == it.dispatcher.n_resumed == 1

    run(check)


def test_text_in_pieces_survives_a_killed_worker(
    shared: Callable[[Check], None], solo: Solo
) -> None:
    pieces = ["Sure, I can ", "do that. It takes", " a while" + CUT, "But it works."]

    async def check(it: Running) -> None:
        ask = WorkerRequest(it.ask(seed=5).options, is_arriving=True, is_open=True)
        async with it.dispatcher.speak(ask) as utterance:
            listening = asyncio.create_task(sound(utterance))
            for number, piece in enumerate(pieces):
                utterance.put(piece)
                await asyncio.sleep(0.1)
                if number == 2:
                    it.dispatcher.supervisor.kill()
            utterance.end()
            assert np.array_equal(await listening, solo(pieces, seed=5))

    shared(check)


def test_audio_that_nobody_reads_is_not_computed(shared: Callable[[Check], None]) -> None:
    async def check(it: Running) -> None:
        text = " ".join([TEXT] * 20)
        async with it.dispatcher.speak(it.ask(text)) as utterance:
            n_before = -1
            while utterance.n_received < AHEAD or utterance.n_received != n_before:
                n_before = utterance.n_received
                await asyncio.sleep(0.4)
                if utterance.outcome is not None:
                    pytest.skip("random weights said less than there is room for")
            assert utterance.n_received < AHEAD + 3 * 24_000
        assert len(await it.speak(it.ask())) > 0

    shared(check)


def test_too_many_are_refused_at_once_and_the_others_are_not(run: Callable[..., None]) -> None:
    async def check(it: Running) -> None:
        tasks = [asyncio.create_task(it.speak(it.ask(seed=n))) for n in range(3)]
        await asyncio.sleep(0)
        begun = time.monotonic()
        with pytest.raises(BusyError) as refused:
            await it.speak(it.ask())
        assert time.monotonic() - begun < 0.05
        assert refused.value.retry_after_s > 0
        tasks[2].cancel()  # one that waits
        assert all(len(spoken) for spoken in await asyncio.gather(*tasks[:2]))
        assert len(await it.speak(it.ask())) > 0
        assert it.dispatcher.n_open == 0

    run(check, n_speaking=1, n_waiting=2)


def test_a_cancelled_request_ends_with_the_words_that_were_begun(
    shared: Callable[[Check], None],
) -> None:
    async def check(it: Running) -> None:
        words: list[Word] = []
        async with it.dispatcher.speak(it.ask(" ".join([TEXT] * 4))) as utterance:
            async for event in utterance:
                if isinstance(event, np.ndarray):
                    assert not utterance.is_cancelled
                    utterance.cancel()
                else:
                    assert isinstance(event, list)
                    words += event
            assert utterance.outcome is not None
            assert utterance.outcome.ending == "cancelled"
        assert words == utterance.words

    shared(check)


def test_what_cannot_be_spoken_is_an_error_of_that_request(
    shared: Callable[[Check], None],
) -> None:
    async def check(it: Running) -> None:
        with pytest.raises(TextError, match="nothing to say"):
            await it.speak(it.ask(" "))
        with pytest.raises(OptionError, match="temperature"):
            await it.speak(it.ask(temperature=99.0))
        with pytest.raises(OptionError, match="no option 'colour'"):
            await it.speak(it.ask(colour="red"))
        assert len(await it.speak(it.ask())) > 0

    shared(check)


def test_an_idle_worker_goes_and_comes_back(run: Callable[..., None], solo: Solo) -> None:
    async def check(it: Running) -> None:
        while it.dispatcher.supervisor.pid is not None:
            await asyncio.sleep(0.05)
        assert np.array_equal(await it.speak(it.ask(seed=3)), solo(TEXT, seed=3))
        assert it.dispatcher.supervisor.n_deaths == 0

    run(check, keep_alive_s=0.2)


def test_a_worker_that_cannot_start_says_why(tmp_path: Path) -> None:
    async def main() -> None:
        config = WorkerConfig(tmp_path, str(tmp_path / "nothing"))
        await Dispatcher(Supervisor(config, tmp_path), Limits()).start()

    with pytest.raises(OptionError, match="nothing"):
        asyncio.run(main())
