"""Keeps one worker process alive: started when it is needed, and again when it dies.

A worker that was killed is started again at once; one that cannot start is tried again after a
while that grows. Knows nothing of what is said to it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from nightingale import errors
from nightingale.errors import NightingaleError, WorkerError

log = logging.getLogger("nightingale.supervisor")

_FIRST_WAIT_S, _LONGEST_WAIT_S = 0.5, 30.0
_MAX_START_S = 300.0  # large weights from a slow disk
_FAREWELL_S = 5.0


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a worker is started."""

    home: Path
    model: str | None = None
    device: str = "auto"
    decoder: str | None = None
    plan: str = "live"
    watermark: bool = True
    threads: int | None = None
    max_requests: int = 8

    def command(self, address: str) -> list[str]:
        said = {
            "--listen": address,
            "--home": self.home,
            "--model": self.model,
            "--device": self.device,
            "--decoder": self.decoder,
            "--plan": self.plan,
            "--threads": self.threads,
            "--max-requests": self.max_requests,
        }
        flags = [text for name, given in said.items() if given for text in (name, str(given))]
        marks = [] if self.watermark else ["--no-watermark"]
        return [sys.executable, "-m", "nightingale.server.worker", "--with-parent", *flags, *marks]


class Supervisor:
    """One worker at a time."""

    def __init__(self, recipe: Recipe, folder: Path) -> None:
        """`folder` is private to this process: the sockets lie in it."""
        self.recipe, self._folder = recipe, folder
        self._process: asyncio.subprocess.Process | None = None
        self._address = ""
        self._lock = asyncio.Lock()
        self._watch: asyncio.Task[None] | None = None
        self._is_wanted = self._is_listening = False
        self.is_stopping = False  # the whole server is: no worker is started any more
        self._n_failures, self._not_before = 0, 0.0
        self._last_error: NightingaleError | None = None
        self.n_starts = self.n_deaths = 0
        self.start_s = 0.0  # how long the last start took

    @property
    def is_ready(self) -> bool:
        """It lives and has said that it listens."""
        return self.pid is not None and self._is_listening

    @property
    def pid(self) -> int | None:
        """Of a worker that lives."""
        process = self._process
        return process.pid if process is not None and process.returncode is None else None

    async def ready(self) -> str:
        """The address of a worker that listens; starts one if there is none."""
        async with self._lock:
            self._is_wanted = True
            if self.pid is None:
                if self.is_stopping:
                    raise WorkerError("the server is shutting down")
                self._check_wait()
                await self._start()
            return self._address

    async def stop(self) -> None:
        """Let it go; the next `ready` starts another one."""
        async with self._lock:
            self._is_wanted = False
            process = self._process
            if process is None or process.returncode is not None:
                return
            self._signal(signal.SIGTERM)
            try:
                await asyncio.wait_for(process.wait(), _FAREWELL_S)
            except TimeoutError:
                self.kill()
                await process.wait()

    def kill(self) -> None:
        """It does not answer any more."""
        self._signal(signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        """Not by asyncio's own method: that may reap the process, and its exit code is lost."""
        if self.pid is not None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)

    async def _bury(self, process: asyncio.subprocess.Process) -> int | None:
        """How it ended, if by itself."""
        try:
            return await asyncio.wait_for(process.wait(), 1.0)
        except TimeoutError:
            self.kill()
            await process.wait()
            return None

    def _check_wait(self) -> None:
        left_s = self._not_before - time.monotonic()
        if left_s > 0 and self._last_error is not None:
            raise self._last_error

    async def _start(self) -> None:
        self.n_starts, self._is_listening = self.n_starts + 1, False
        address, begun = str(self._folder / f"{self.n_starts}.sock"), time.monotonic()
        self._process = await asyncio.create_subprocess_exec(
            *self.recipe.command(address),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            await asyncio.wait_for(self._hear(self._process), _MAX_START_S)
        except (NightingaleError, TimeoutError) as error:
            code = await self._bury(self._process)
            self._note_failure(error, was_killed=code is not None and code < 0)
            assert self._last_error is not None
            raise self._last_error from error
        self._address, self._n_failures, self._is_listening = address, 0, True
        self.start_s = time.monotonic() - begun
        log.info("worker started", extra={"pid": self.pid, "start_s": round(self.start_s, 3)})
        self._watch = asyncio.create_task(self._outlive(self._process))

    def _note_failure(self, error: Exception, *, was_killed: bool) -> None:
        """One that was killed while it started would have started; others will fail again."""
        wait_s = min(_FIRST_WAIT_S * 2**self._n_failures, _LONGEST_WAIT_S)
        wait_s, self._n_failures = (0.0, 0) if was_killed else (wait_s, self._n_failures + 1)
        self._not_before = time.monotonic() + wait_s
        is_ours = isinstance(error, NightingaleError)
        late = WorkerError(f"the worker was not ready after {_MAX_START_S:.0f} s")
        self._last_error = error if is_ours else late  # type: ignore[assignment]
        log.error("worker cannot start", extra={"retry_s": wait_s, "reason": str(self._last_error)})

    @staticmethod
    async def _hear(process: asyncio.subprocess.Process) -> None:
        """Its first line says that it listens, or why it cannot."""
        assert process.stdout is not None
        line = await process.stdout.readline()
        try:
            told = json.loads(line or b"{}")
        except ValueError:
            told = {}
        if "listening" in told:
            return
        kind = getattr(errors, str(told.get("error")), WorkerError)
        raise kind(told.get("message", "the worker ended before it was ready"))

    async def _outlive(self, process: asyncio.subprocess.Process) -> None:
        """When it dies though it is wanted, the next one is started before anybody asks."""
        code = await process.wait()
        if not self._is_wanted or self.is_stopping:
            return
        self.n_deaths += 1
        log.warning("worker died", extra={"pid": process.pid, "code": code})
        with suppress(NightingaleError):
            await self.ready()
