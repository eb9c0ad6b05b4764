"""A worker's process without a model: when it is started again, and when not."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from nightingale.errors import WorkerError
from nightingale.server.supervisor import Recipe, Supervisor

SLEEPER = """
import os, sys, time
os.write(int(sys.argv[1]), b"{\\"listening\\": 1}\\n")
time.sleep(60)
"""


class Sleeper(Recipe):
    """A worker that says that it listens, and does nothing."""

    def command(self, address: str, status_fd: int) -> list[str]:  # noqa: ARG002
        return [sys.executable, "-S", "-c", SLEEPER, str(status_fd)]


async def _until_gone(pid: int) -> None:
    while Path(f"/proc/{pid}/cwd").exists():
        await asyncio.sleep(0.005)


@pytest.mark.parametrize("is_stopping", [False, True])
def test_no_worker_is_started_while_the_server_stops(is_stopping: bool, tmp_path: Path) -> None:
    """SIGTERM to the whole process group ends the worker, too: that is no reason for another."""

    async def check() -> None:
        supervisor = Supervisor(Sleeper(tmp_path), tmp_path)
        await supervisor.ready()
        first = supervisor.pid
        assert first is not None
        supervisor.is_stopping = is_stopping
        os.kill(first, signal.SIGTERM)
        await _until_gone(first)
        if is_stopping:
            await asyncio.sleep(0.1)
            assert (supervisor.n_starts, supervisor.n_deaths) == (1, 0)
            with pytest.raises(WorkerError, match="shutting down"):
                await supervisor.ready()
        else:
            while supervisor.n_starts < 2 or not supervisor.is_ready:
                await asyncio.sleep(0.005)
            assert supervisor.n_deaths == 1
        await supervisor.stop()

    asyncio.run(asyncio.wait_for(check(), 20))
