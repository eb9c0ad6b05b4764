"""One worker process: started, waited for until it listens, signalled, and reaped.

It reports over a socket of its own that it listens, or why it cannot; its standard output goes to
our standard error, so that nothing a library prints is taken for a message or fills a pipe.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
from collections.abc import Callable
from contextlib import suppress

from nightingale import errors
from nightingale.errors import NightingaleError, WorkerError

log = logging.getLogger("nightingale.process")

_STDERR = 2
_MAX_STATUS = 64 * 2**10  # bytes of the status message
_TERMINATE_S, _REAP_S = 5.0, 5.0

Command = Callable[[int], list[str]]  # given the descriptor for the status message


class WorkerProcess:
    """A process that was started, and where it listens."""

    def __init__(self, process: asyncio.subprocess.Process, status: socket.socket) -> None:
        self._process, self._status = process, status
        self._was_killed_here = False

    @classmethod
    async def start(cls, command: Command) -> WorkerProcess:
        """It ends when its standard input does, so it does not outlive this process."""
        ours, theirs = socket.socketpair()
        try:
            process = await asyncio.create_subprocess_exec(
                *command(theirs.fileno()),
                stdin=asyncio.subprocess.PIPE,
                stdout=_STDERR,
                pass_fds=(theirs.fileno(),),
            )
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        return cls(process, ours)

    async def listening(self) -> None:
        """Wait until it listens; raises what it reports instead."""
        try:
            reader, writer = await asyncio.open_connection(sock=self._status, limit=_MAX_STATUS)
        except BaseException:
            self._status.close()
            raise
        try:
            line = await reader.readline()
        finally:
            writer.close()
        try:
            status = json.loads(line or b"{}")
        except ValueError:
            status = {}
        if "listening" in status:
            return
        kind = getattr(errors, str(status.get("error")), WorkerError)
        is_ours = isinstance(kind, type) and issubclass(kind, NightingaleError)
        message = status.get("message", "the worker process ended before it was ready")
        raise (kind if is_ours else WorkerError)(message)

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.returncode is None

    @property
    def exit_code(self) -> int | None:
        """Below zero: the signal that ended it; None: it lives."""
        return self._process.returncode

    async def wait(self) -> None:
        """Until it has ended."""
        await self._process.wait()

    async def terminate(self) -> None:
        """WorkerRequest it to finish; kill it if it does not."""
        self._signal(signal.SIGTERM)
        try:
            await asyncio.wait_for(self.wait(), _TERMINATE_S)
        except Exception:
            await self.kill_and_reap()

    async def ended(self, max_s: float) -> None:
        """Wait for its end, but no longer than this."""
        with suppress(TimeoutError, OSError):
            await asyncio.wait_for(self.wait(), max_s)

    @property
    def was_killed_from_outside(self) -> bool:
        """By an operator, or by the kernel for want of memory."""
        return self.exit_code == -signal.SIGKILL and not self._was_killed_here

    def kill(self) -> None:
        self._was_killed_here = True
        self._signal(signal.SIGKILL)

    async def kill_and_reap(self) -> None:
        """Gone when this returns, unless the system itself holds it."""
        self.kill()
        try:
            await asyncio.wait_for(self.wait(), _REAP_S)
        except Exception:
            log.exception("worker process does not end after SIGKILL", extra={"pid": self.pid})

    def _signal(self, number: signal.Signals) -> None:
        """Not by asyncio's own method: that may reap the process, and its exit code is lost."""
        if self.is_alive:
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)
