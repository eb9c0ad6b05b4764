"""A worker's process without a model: when it is started again, and when not."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

from nightingale.errors import WorkerError
from nightingale.server.supervisor import Supervisor, WorkerConfig

SLEEPER = """
import os, sys, time
os.write(int(sys.argv[1]), b"{\\"listening\\": 1}\\n")
time.sleep(60)
"""


class Sleeper(WorkerConfig):
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


NOISY = """
import os, sys, time
print("a library greets" * 20_000, flush=True)
os.write(int(sys.argv[1]), b'{"listening": 1}\\n')
print("and says more" * 20_000, flush=True)
open(sys.argv[2], "w").close()
time.sleep(60)
"""


class Noisy(WorkerConfig):
    """A worker that prints more than a pipe holds, before and after it listens."""

    def command(self, address: str, status_fd: int) -> list[str]:
        return [sys.executable, "-S", "-c", NOISY, str(status_fd), f"{address}.printed"]


def test_what_a_worker_prints_is_neither_a_message_nor_in_its_way(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    async def check() -> None:
        supervisor = Supervisor(Noisy(tmp_path), tmp_path)
        address = await supervisor.ready()
        while not Path(f"{address}.printed").exists():
            await asyncio.sleep(0.01)
        await supervisor.stop()

    asyncio.run(asyncio.wait_for(check(), 20))
    printed = capfd.readouterr()
    assert not printed.out
    assert "a library greets" in printed.err and "and says more" in printed.err


ORPHAN = """
import subprocess, sys, time
worker = subprocess.Popen([sys.executable, "-m", "nightingale.server.worker", "--with-parent",
    "--listen", sys.argv[1], "--home", sys.argv[2]], stdin=subprocess.PIPE)
print(worker.pid, flush=True)
time.sleep(60)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the kernel has to do it")
def test_a_stopped_worker_does_not_outlive_its_front(tmp_path: Path) -> None:
    command = [sys.executable, "-c", ORPHAN, str(tmp_path / "1.sock"), str(tmp_path)]
    front = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert front.stdout is not None
    worker = int(front.stdout.readline())
    stat = Path(f"/proc/{worker}/stat")
    try:
        until = time.monotonic() + 60
        while not (tmp_path / "1.sock").exists():  # it listens, so all of it was set up
            assert time.monotonic() < until
            time.sleep(0.05)
        os.kill(worker, signal.SIGSTOP)
        while " T " not in stat.read_text():
            time.sleep(0.01)
        front.kill()
        front.wait()
        until = time.monotonic() + 10
        while stat.exists() and " Z " not in stat.read_text():
            assert time.monotonic() < until, "it is still there, stopped"
            time.sleep(0.01)
    finally:
        front.kill()
        front.communicate()
        with suppress(ProcessLookupError):
            os.kill(worker, signal.SIGKILL)
