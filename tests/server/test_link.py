"""The connection to a worker that fails in one way each; a real process, and no model."""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path

import numpy as np
import pytest

from nightingale.errors import WorkerError
from nightingale.server import link
from nightingale.server.dispatch import Dispatcher, Limits
from nightingale.server.supervisor import Supervisor
from nightingale.server.utterance import Ask
from tests.server.scripted import N_CHUNK, N_CHUNKS, Scripted

RAMP = np.arange(N_CHUNK * N_CHUNKS, dtype=np.float32)


def server(folder: Path, behaviour: str = "well") -> Dispatcher:
    return Dispatcher(Supervisor(Scripted(folder, behaviour=behaviour), folder), Limits())


async def speak(dispatcher: Dispatcher, text: str) -> None:
    """The whole ramp, once."""
    async with dispatcher.speak(Ask({}, [text])) as utterance:
        heard = [event async for event in utterance if isinstance(event, np.ndarray)]
        assert utterance.outcome is not None
        assert utterance.outcome.ending == "stop"
    assert np.array_equal(np.concatenate(heard), RAMP)


@pytest.mark.parametrize(
    ("text", "noted"),
    [
        ("die", "worker died"),
        ("stop", "unresponsive"),
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
