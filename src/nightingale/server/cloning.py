"""Voice cloning as the front sees it: a bounded queue in front of one process (`clone_process`).

The process is started by the first recording, kept while there are more, and let go after an idle
minute. It is killed when a recording takes too long or its client hangs up; the next recording
gets a new one. Knows nothing of names, keys' limits or where voices are stored.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace

from nightingale import errors
from nightingale.errors import BusyError, NightingaleError, WorkerError
from nightingale.server import worker_protocol
from nightingale.server.api_errors import APIError
from nightingale.server.keys import ANYBODY, Key
from nightingale.server.supervisor import WorkerConfig
from nightingale.server.worker_protocol import Message

log = logging.getLogger("nightingale.cloning")

_START_S = 300.0  # large weights from a slow disk
_PATIENCE = 4.0  # wall-clock seconds for each CPU second that the process may use
_LEAST_CPU_S = 10.0
_STOP_S = 5.0
_HARMLESS = (errors.RequestError, errors.MissingPackageError)  # the process goes on after them
_SECONDS_EACH = 5.0  # that a recording takes, about: for Retry-After


@dataclass(frozen=True, slots=True)
class CloneLimits:
    """What recordings may take, each and together."""

    n_pending: int = 8  # uploads being read, waiting or processed
    n_pending_of_key: int = 4  # of these, of one API key
    cpu_s: float = 30.0  # for a recording, beside the time of a few test sentences
    memory_bytes: int = 2**30  # for a recording, beside the model
    idle_s: float = 60.0  # after which the process is let go


@dataclass(frozen=True, slots=True)
class Cloned:
    """A voice made from a recording, as a file, and what there is to say about it."""

    voice_file: bytes
    summary: str
    warnings: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Process:
    """A process and the connection to it."""

    child: asyncio.subprocess.Process
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    max_s: float = 0.0  # for a recording, by the clock; reported when its model is loaded


class Cloner:
    """All cloning of one front."""

    def __init__(self, config: WorkerConfig, limits: CloneLimits | None = None) -> None:
        self._config, self.limits = config, limits or CloneLimits()
        self._pending: Counter[str] = Counter()
        self._turn = asyncio.Lock()  # first come, first served
        self._process: _Process | None = None
        self._idle: asyncio.TimerHandle | None = None
        self._stopping: asyncio.Task[None] | None = None
        self._is_closed = False
        self.n_starts = 0

    @property
    def n_pending(self) -> int:
        return self._pending.total()

    @property
    def pid(self) -> int | None:
        """Of the process, if there is one now."""
        return None if self._process is None else self._process.child.pid

    @contextmanager
    def admit(self, key: Key) -> Iterator[None]:
        """Counted from before its upload is read until its voice is made; refused if too many."""
        limits, n_own = self.limits, self._pending[key.name]
        if self._is_closed:
            raise BusyError("the server is shutting down", retry_after_s=5.0)
        is_too_many = key is not ANYBODY and n_own >= limits.n_pending_of_key
        if self.n_pending >= limits.n_pending or is_too_many:
            raise BusyError(
                f"the cloning queue is full: {self.n_pending} recordings are waiting or processed "
                f"({limits.n_pending} allowed, {limits.n_pending_of_key} for each API key); "
                "try again soon",
                retry_after_s=_SECONDS_EACH * (n_own or 1),
            )
        self._pending[key.name] += 1
        try:
            yield
        finally:
            self._pending[key.name] -= 1

    async def clone(
        self,
        recording: bytes,
        model: str | None,
        language: str | None,
        consent: str | None,
        **options: bool | float,
    ) -> Cloned:
        """A voice from a recording, for the model that the worker has loaded; one at a time."""
        request = {"kind": "clone", "language": language, "consent": consent, "options": options}
        async with self._turn:
            if self._is_closed:
                raise BusyError("the server is shutting down", retry_after_s=5.0)
            self._keep()
            try:
                process = self._process or await self._start(model)
                return await self._ask(process, request, recording)
            except BaseException as error:
                if not isinstance(error, _HARMLESS):
                    await asyncio.shield(self._end(kill=True))
                raise
            finally:
                self._idle = asyncio.get_running_loop().call_later(self.limits.idle_s, self._let_go)

    async def stop(self) -> None:
        """For good."""
        self._is_closed = True
        self._keep()
        await self._end(kill=True)
        if self._stopping is not None:
            await self._stopping

    async def _start(self, model: str | None) -> _Process:
        ours, theirs = socket.socketpair()
        reader, writer = await asyncio.open_connection(sock=ours)
        try:
            with theirs:
                command = self._command(model)
                child = await asyncio.create_subprocess_exec(*command, stdin=theirs.fileno())
        except OSError as error:
            writer.close()
            raise WorkerError(f"the cloning process cannot start: {error.strerror}") from error
        self._process, self.n_starts = _Process(child, reader, writer), self.n_starts + 1
        try:
            async with asyncio.timeout(_START_S):
                hello, _ = await _next(reader)
        except TimeoutError as error:
            raise WorkerError(f"cloning was not ready after {_START_S:.0f} s") from error
        if hello["kind"] == "error":
            raise WorkerError(f"the cloning process cannot start: {hello['message']}")
        self._process = replace(self._process, max_s=_PATIENCE * max(_LEAST_CPU_S, hello["cpu_s"]))
        log.info("cloning process started", extra={"pid": child.pid, "model": hello["model"]})
        return self._process

    def _command(self, model: str | None) -> list[str]:
        config, limits = self._config, self.limits
        flags = {
            "--home": config.home,
            "--model": config.model or model,  # never "the best": the one that the worker took
            "--backend": config.backend,
            "--device": config.device,
            "--max-cpu": limits.cpu_s,
            "--max-memory": limits.memory_bytes,
        }
        given = [text for name, value in flags.items() if value for text in (name, str(value))]
        return [sys.executable, "-m", "nightingale.server.clone_process", *given]

    async def _ask(self, process: _Process, request: Message, recording: bytes) -> Cloned:
        try:
            async with asyncio.timeout(process.max_s):
                process.writer.write(worker_protocol.pack(request, recording))
                with suppress(OSError):  # it died: the end of its answers says so
                    await process.writer.drain()
                answer, voice_file = await _next(process.reader)
        except TimeoutError as error:
            raise _too_expensive(f"{process.max_s:.0f} s") from error
        except WorkerError:
            code = await process.child.wait()
            log.warning("cloning process died", extra={"pid": process.child.pid, "code": code})
            raise self._judge(code) from None
        if answer["kind"] == "error":
            raise self._judge_memory() if answer["error"] == "MemoryError" else _error(answer)
        return Cloned(voice_file, answer["summary"], tuple(answer["warnings"]))

    def _judge(self, code: int) -> Exception:
        """Why it died over a recording: its limits, or a crash in a decoder."""
        if code == -signal.SIGXCPU:
            return _too_expensive(f"{self.limits.cpu_s:.0f} s of CPU time")
        if code == -signal.SIGKILL:  # by the operator or for want of memory: not its own doing
            return WorkerError("the cloning process was killed")
        return APIError(
            422, "recording_unusable",
            "this recording made its decoder crash; export it again as 16-bit WAV",
        )  # fmt: skip

    def _judge_memory(self) -> APIError:
        return _too_expensive(f"{self.limits.memory_bytes >> 20} MB of memory")

    def _keep(self) -> None:
        if self._idle is not None:
            self._idle.cancel()

    def _let_go(self) -> None:
        self._stopping = asyncio.ensure_future(self._stop_idle())

    async def _stop_idle(self) -> None:
        async with self._turn:
            if self._process is not None:
                log.info("cloning process stopped: idle", extra={"pid": self.pid})
                await self._end(kill=False)

    async def _end(self, *, kill: bool) -> None:
        """No process any more. Without `kill` it may exit by itself, which it does at once."""
        process, self._process = self._process, None
        if process is None:
            return
        process.writer.close()
        if not kill:
            with suppress(TimeoutError):
                await asyncio.wait_for(process.child.wait(), _STOP_S)
        if process.child.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(process.child.pid, signal.SIGKILL)
            await process.child.wait()


async def _next(reader: asyncio.StreamReader) -> tuple[Message, bytes]:
    frame = await worker_protocol.receive(reader)
    if frame is None:
        raise WorkerError("the cloning process ended")
    return frame


def _too_expensive(limit: str) -> APIError:
    return APIError(
        422,
        "recording_too_expensive",
        f"processing this recording takes more than {limit}; send 10 s of it as 16-bit WAV",
    )


def _error(message: Message) -> NightingaleError:
    """As it was raised there, if it is one of ours."""
    kind = getattr(errors, message["error"], None)
    if not (isinstance(kind, type) and issubclass(kind, NightingaleError)):
        return WorkerError(f"cloning failed ({message['error']})")
    return kind(message["message"])
