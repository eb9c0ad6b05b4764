"""Keeps one worker process alive: started when it is needed, and again when it dies.

A worker that was of use is replaced at once when it dies. One that dies before its first audio, or
that cannot start, is tried again with exponential back-off; after five such failures the circuit
breaker opens. Every wait has a deadline. Knows nothing of what is said to a worker.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from nightingale.core import AUTO
from nightingale.errors import NightingaleError, UnavailableError, WorkerError
from nightingale.server.breaker import BreakerState, CircuitBreaker
from nightingale.server.process import WorkerProcess

log = logging.getLogger("nightingale.supervisor")

_MAX_START_S = 300.0  # large weights from a slow disk
_MAX_WAIT_S = 30.0  # beside that: back-off, and the end of a worker that was killed
_PROVEN_S = 30.0  # who lives so long, or produces audio before, has started
_RETRY_S = 0.2


class WorkerState(StrEnum):
    """Whether there is a worker, and if not, why."""

    READY = "ready"
    IDLE = "idle"  # stopped on purpose (--keep-alive); the next request starts one
    STARTING = "starting"  # for the first time, or after an idle time
    RESTARTING = "restarting"  # after a crash or a failed start
    UNAVAILABLE = "unavailable"  # the circuit breaker is open
    STOPPED = "stopped"  # the server is shutting down


@dataclass(frozen=True, slots=True)
class WorkerConfig:
    """How a worker is started."""

    home: Path
    model: str | None = None
    backend: str = "torch"
    device: str = "auto"
    decoder: str | None = None
    plan: str = AUTO
    watermark: bool = True
    threads: int | None = None
    max_requests: int = 8

    def command(self, address: str, status_fd: int) -> list[str]:
        given = {
            "--listen": address,
            "--status-fd": status_fd,
            "--home": self.home,
            "--model": self.model,
            "--backend": self.backend,
            "--device": self.device,
            "--decoder": self.decoder,
            "--plan": self.plan,
            "--threads": self.threads,
            "--max-requests": self.max_requests,
        }
        flags = [text for name, value in given.items() if value for text in (name, str(value))]
        marks = [] if self.watermark else ["--no-watermark"]
        return [sys.executable, "-m", "nightingale.server.worker", "--with-parent", *flags, *marks]


class Supervisor:
    """One worker at a time."""

    def __init__(self, config: WorkerConfig, folder: Path) -> None:
        """`folder` is private to this process: the sockets lie in it."""
        self.config, self._folder = config, folder
        self.breaker = CircuitBreaker()
        self._worker: WorkerProcess | None = None
        self._address = ""
        self._lock = asyncio.Lock()
        self._watching: asyncio.Task[None] | None = None
        self._is_wanted = self._is_listening = self._is_proven = False
        self._has_failed = False  # since the last worker that listened
        self.is_stopping = False  # the whole server is: no worker is started any more
        self.n_starts = self.n_deaths = 0
        self.start_s = 0.0  # how long the last start took

    @property
    def is_ready(self) -> bool:
        """It lives and has reported that it listens."""
        return self.pid is not None and self._is_listening

    @property
    def pid(self) -> int | None:
        """Of a worker that lives."""
        return self._worker.pid if self._worker is not None and self._worker.is_alive else None

    @property
    def worker(self) -> WorkerProcess | None:
        """The last one that was started."""
        return self._worker

    @property
    def state(self) -> WorkerState:
        if self.is_stopping:
            return WorkerState.STOPPED
        if self.is_ready:
            return WorkerState.READY
        if self.breaker.state is BreakerState.OPEN:
            return WorkerState.UNAVAILABLE
        if not self._is_wanted:
            return WorkerState.IDLE
        has_failed = self._has_failed or self._is_listening  # it listened, and is gone
        return WorkerState.RESTARTING if has_failed else WorkerState.STARTING

    def pin(self, model: str) -> None:
        """Later workers load this model, too: a better one that is pulled meanwhile must not
        change the voice of open streams."""
        if self.config.model is None:
            self.config = replace(self.config, model=model)

    def check(self) -> None:
        """Raises if no worker is there and none may be started now."""
        if self.pid is None and self.breaker.state is BreakerState.OPEN:
            raise UnavailableError(
                "speech is unavailable: the worker process failed repeatedly; try again later",
                retry_after_s=self.breaker.wait_s,
            )

    def note_audio(self) -> None:
        """The worker is of use."""
        if not self._is_proven:
            self._is_proven = True
            self.breaker.note_success()

    async def ready(self) -> str:
        """The address of a worker that listens; starts one if there is none."""
        try:
            async with asyncio.timeout(_MAX_START_S + _MAX_WAIT_S), self._lock:
                self._is_wanted = True
                if self.pid is None:
                    self._note_death()
                    self._check_stopping()
                    self.check()
                    await asyncio.sleep(self.breaker.wait_s)
                    self._check_stopping()
                    await self._start()
                return self._address
        except TimeoutError as error:
            raise WorkerError("no worker was ready in time") from error

    async def stop(self) -> None:
        """Stop the worker; the next `ready` starts another one."""
        self._is_wanted = False
        if self._watching is not None:
            self._watching.cancel()  # and with it a start that is under way
        try:
            async with asyncio.timeout(_MAX_WAIT_S), self._lock:
                if self._worker is not None and self._worker.is_alive:
                    await self._worker.terminate()
                self._is_listening = False
        except Exception:
            log.exception("worker not stopped in time: killed")
            self.kill()

    def kill(self) -> None:
        """It does not respond any more."""
        if self._worker is not None:
            self._worker.kill()

    def _check_stopping(self) -> None:
        if self.is_stopping:
            raise WorkerError("the server is shutting down")

    async def _start(self) -> None:
        self.n_starts += 1
        self._is_listening = self._is_proven = False
        address, begun = str(self._folder / f"{self.n_starts}.sock"), time.monotonic()
        self._worker = None
        try:
            async with asyncio.timeout(_MAX_START_S):
                worker = await WorkerProcess.start(lambda fd: self.config.command(address, fd))
                self._worker = worker
                await worker.listening()
        except BaseException as error:
            if self._worker is not None:
                await self._worker.kill_and_reap()
            if not isinstance(error, Exception):
                raise  # cancelled
            raise self._note_failed_start(error) from error
        self._address, self._is_listening, self._has_failed = address, True, False
        self.start_s = time.monotonic() - begun
        log.info("worker started", extra={"pid": worker.pid, "start_s": round(self.start_s, 3)})
        self._watching = asyncio.create_task(self._watch(worker))

    def _note_failed_start(self, error: Exception) -> NightingaleError:
        """The error of those who wait for the worker."""
        reason = error
        if isinstance(error, TimeoutError):
            reason = WorkerError(f"the worker was not ready after {_MAX_START_S:.0f} s")
        elif not isinstance(error, NightingaleError):
            reason = WorkerError(f"the worker cannot be started ({type(error).__name__})")
        self._has_failed = True
        self.breaker.note_failure(str(reason))
        log.error("worker cannot start", extra={**self._outlook(), "reason": str(reason)})
        assert isinstance(reason, NightingaleError)
        return reason

    def _note_death(self) -> None:
        """Of a worker that listened and was not stopped; once."""
        is_wanted = self._is_wanted and not self.is_stopping
        if not is_wanted or not self._is_listening or self._worker is None or self._worker.is_alive:
            return
        self._is_listening, self._has_failed = False, True
        self.n_deaths += 1
        if not self._is_proven:
            self.breaker.note_failure("the worker process died soon after its start")
        ended = {"pid": self._worker.pid, "code": self._worker.exit_code}
        log.warning("worker died", extra={**ended, **self._outlook()})

    def _outlook(self) -> dict[str, object]:
        return {"breaker": str(self.breaker.state), "retry_s": round(self.breaker.wait_s, 2)}

    async def _watch(self, worker: WorkerProcess) -> None:
        """When it dies though it is wanted, the next one is started before anybody asks."""
        try:
            async with asyncio.timeout(_PROVEN_S):
                await worker.wait()
        except TimeoutError:
            self.note_audio()  # as good as audio
        except Exception:
            log.exception("worker not watched for a while")
        while self._is_wanted and not self.is_stopping:
            try:
                await worker.wait()
                self._note_death()
                await asyncio.sleep(self.breaker.wait_s)
                if self._is_wanted and not self.is_stopping:
                    await self.ready()
                return  # the next one has a task of its own
            except Exception as error:
                log.debug("worker not restarted yet", extra={"reason": type(error).__name__})
                await asyncio.sleep(_RETRY_S)
