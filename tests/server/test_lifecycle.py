"""Some of what benchmarks/lifecycle.py tries: signals, and how every client ends."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import httpx
import pytest

from benchmarks import lifecycle
from benchmarks.clients import CLIENTS
from tests.server.conftest import Subject
from tests.server.running import launched, wait_until_ready

pytestmark = pytest.mark.slow

BUSY_S = 4.0  # of a machine that does other things, too


@pytest.mark.parametrize("state", ["speaking", "waiting", "dead reader"])
def test_sigterm_lets_speech_end_and_informs_the_others(
    subject: Subject, tmp_path: Path, state: str
) -> None:
    done = asyncio.run(
        lifecycle.trial(subject.folder, tmp_path, signal.SIGTERM, state, late_s=BUSY_S)
    )
    assert not done.wrong, done.report


def test_sigkill_is_never_taken_for_an_end(subject: Subject, tmp_path: Path) -> None:
    done = asyncio.run(
        lifecycle.trial(subject.folder, tmp_path, signal.SIGKILL, "speaking", late_s=BUSY_S)
    )
    assert not done.wrong, done.report


def test_a_server_that_does_not_drain_is_noticed(subject: Subject, tmp_path: Path) -> None:
    fault = Path(lifecycle.__file__).parent / "no_drain"
    environ = {"PYTHONPATH": lifecycle.with_python_path(fault)}
    done = asyncio.run(
        lifecycle.trial(
            subject.folder, tmp_path, signal.SIGTERM, "waiting", late_s=BUSY_S, environ=environ
        )
    )
    assert any("websocket" in wrong for wrong in done.wrong), done.report


def test_while_draining_nobody_new_is_served_and_a_second_signal_ends_it(
    subject: Subject, tmp_path: Path
) -> None:
    async def main() -> None:
        with launched(subject.folder, tmp_path, subject.options, "--drain", "60") as server:
            await asyncio.to_thread(wait_until_ready, server)
            talk, late = CLIENTS["websocket"](server), CLIENTS["websocket"](server)
            await talk.connect()
            await talk.ask("It waits for more text", is_open=True)
            await asyncio.sleep(0.5)
            server.process.terminate()
            await asyncio.sleep(0.5)
            assert httpx.get(f"{server.url}/health/ready").status_code == 503
            assert httpx.get(f"{server.url}/health/live").status_code == 200
            refused = httpx.post(f"{server.url}/v1/audio/speech", json=server.body("Hello."))
            assert refused.status_code == 503
            assert int(refused.headers["retry-after"]) > 0
            await late.connect()
            assert await late.ending() == "cut"
            server.process.terminate()
            assert await asyncio.to_thread(server.process.wait, 5 + BUSY_S) == 0
            assert await talk.ending() == "cut"

    asyncio.run(main())
