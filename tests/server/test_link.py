"""The connection to a worker that fails in one way each; a real process, and no model."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
import time
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from nightingale.errors import WorkerError
from nightingale.server import link
from nightingale.server.dispatch import Dispatcher, Limits
from nightingale.server.supervisor import Supervisor
from nightingale.server.worker_request import WorkerRequest
from tests.server.scripted import N_CHUNK, N_CHUNKS, Scripted

RAMP = np.arange(N_CHUNK * N_CHUNKS, dtype=np.float32)


def server(folder: Path, behaviour: str = "well") -> Dispatcher:
    return Dispatcher(Supervisor(Scripted(folder, behaviour=behaviour), folder), Limits())


async def speak(dispatcher: Dispatcher, text: str) -> None:
    """The whole ramp, once."""
    async with dispatcher.speak(WorkerRequest({}, [text])) as utterance:
        heard = [event async for event in utterance if isinstance(event, np.ndarray)]
        assert utterance.outcome is not None
        assert utterance.outcome.ending == "stop"
    assert np.array_equal(np.concatenate(heard), RAMP)


@pytest.mark.parametrize(
    ("text", "noted"),
    [
        ("die", "worker died"),
        pytest.param("stop", "unresponsive", marks=pytest.mark.slow),
        ("nonsense", "connection to the worker lost"),
    ],
)
def test_a_stream_outlives_its_worker(
    text: str, noted: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """One that exits, one that is stopped (three seconds), one that sends what nobody can read."""
    caplog.set_level(logging.INFO)

    async def check() -> None:
        dispatcher = server(tmp_path)
        await dispatcher.start()
        begun = time.monotonic()
        await speak(dispatcher, text)
        assert time.monotonic() - begun < 25  # unanswered pings: 3 s; it was a minute before
        assert dispatcher.n_resumed == dispatcher.supervisor.n_deaths == 1
        await speak(dispatcher, "next")
        await dispatcher.stop(0.0)

    asyncio.run(asyncio.wait_for(check(), 60))
    assert noted in caplog.text


async def _exhaust_descriptors(seconds: float) -> None:
    """For a while nothing can be opened in this process, as if it had no descriptors left."""
    held, until = list[int](), time.monotonic() + seconds
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, limits[1]))
    try:
        while time.monotonic() < until:
            with suppress(OSError):
                while True:
                    held.append(os.open(os.devnull, os.O_RDONLY))
            await asyncio.sleep(0.001)
    finally:
        for descriptor in held:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.mark.slow
def test_a_stream_goes_on_when_there_are_descriptors_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """OSError where a process is started: before, no worker came until another client did."""

    async def check() -> None:
        dispatcher = server(tmp_path)
        await dispatcher.start()
        exhausting = asyncio.create_task(_exhaust_descriptors(1.5))
        await asyncio.sleep(0.1)
        await speak(dispatcher, "die")
        assert exhausting.done(), "there were descriptors all the time"
        await dispatcher.stop(0.0)

    asyncio.run(asyncio.wait_for(check(), 60))
    assert "worker cannot start" in caplog.text


@pytest.mark.slow
def test_a_worker_that_says_nothing_is_killed_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "_HELLO_S", 0.5)

    async def check() -> None:
        dispatcher = server(tmp_path, "no hello")
        with pytest.raises(WorkerError, match="did not answer"):
            await dispatcher.start()
        await speak(dispatcher, "next")  # by the next worker, which does
        await dispatcher.stop(0.0)

    asyncio.run(asyncio.wait_for(check(), 30))


def test_a_worker_of_another_protocol_is_not_used(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def check() -> None:
        dispatcher = server(tmp_path, "older")
        with pytest.raises(WorkerError):
            await dispatcher.start()
        await dispatcher.stop(0.0)

    asyncio.run(asyncio.wait_for(check(), 30))
    assert "restart the server" in str([record.__dict__ for record in caplog.records])


def test_no_more_are_admitted_than_fit_into_the_workers_memory(tmp_path: Path) -> None:
    async def check() -> None:
        dispatcher = server(tmp_path, "holds 2")
        assert dispatcher.admission.limits.n_running == 8
        await dispatcher.start()
        limits = dispatcher.admission.limits
        assert (limits.n_running, limits.n_running_per_owner, limits.n_open) == (2, 2, 8)
        await asyncio.gather(*(speak(dispatcher, "one of five") for _ in range(5)))
        await dispatcher.stop(0.0)

    asyncio.run(asyncio.wait_for(check(), 60))
