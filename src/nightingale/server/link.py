"""The connection to the worker process: opened, watched, and opened again when it is lost.

Whatever fails on the way ends in another attempt with back-off, or in an error for those who wait;
nothing is waited for without a deadline. Knows nothing of what the requests are about.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Protocol

from nightingale.errors import NightingaleError, UnavailableError, WorkerError
from nightingale.server import heartbeat, step_record, worker_protocol
from nightingale.server.heartbeat import Heartbeat
from nightingale.server.process import WorkerProcess
from nightingale.server.supervisor import Supervisor
from nightingale.server.utterance import Blame
from nightingale.server.worker_protocol import Message

log = logging.getLogger("nightingale.link")

_HELLO_S = 10.0  # from the connection to its first message
_PATIENCE_S = 30.0  # of attempts that fail, before those who wait get an error
_MAX_OPEN_S = 400.0  # the same, however long a start takes
_MAX_REPORTED = 3  # attempts, if the worker itself reports why it cannot start
_FIRST_RETRY_S, _LONGEST_RETRY_S = 0.1, 3.0
_STUCK_S = 180.0  # in one step; whole parts of a text take long on slow machines
_CLOSE_S = 1.0
_DEATH_S = 1.0  # from the end of the connection to that of the process


class Receiver(Protocol):
    """Who is notified of what happens on the connection."""

    def on_connected(self) -> None:
        """There is a worker: it has to be given everything that is open."""

    def on_message(self, message: Message, payload: bytes) -> None: ...

    def on_lost(self, blames: Sequence[Blame]) -> bool:
        """The worker is gone, perhaps by a step; True if another one is needed now."""

    def on_unavailable(self, error: NightingaleError) -> None:
        """No worker could be had: nobody should wait any longer."""


class WorkerLink:
    """One connection at a time, to whatever worker the supervisor has."""

    def __init__(self, supervisor: Supervisor, receiver: Receiver) -> None:
        self._supervisor, self._receiver = supervisor, receiver
        self.hello: Message = {}  # what the worker said about itself
        self.worker_bytes = 0
        self._lock = asyncio.Lock()
        self._is_closed = False
        self._address = ""  # of the worker, while it is connected and afterwards
        self._worker: WorkerProcess | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._opening: asyncio.Task[None] | None = None
        self._reading: asyncio.Task[None] | None = None
        self._beating: asyncio.Task[None] | None = None

    @property
    def is_open(self) -> bool:
        return self._writer is not None

    def send(self, message: Message, payload: bytes = b"") -> None:
        """To the worker, if there is one; if not, the next one is given everything anew."""
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(worker_protocol.pack(message, payload))

    def reopen(self) -> None:
        """In the background; the receiver hears of the result."""
        if self._opening is None or self._opening.done():
            self._opening = asyncio.create_task(self._keep_opening())

    async def open(self) -> None:
        """Connect now, or raise why not."""
        async with self._lock:
            if self._writer is not None:
                return
            address = await self._supervisor.ready()
            self._worker = self._supervisor.worker
            try:
                async with asyncio.timeout(_HELLO_S):
                    reader, writer = await worker_protocol.connect(address)
                    hello = await self._receive_hello(reader, writer)
            except Exception as error:
                reason = str(error) or type(error).__name__
                log.error("worker killed: no hello", extra={"reason": reason})
                self._kill()
                raise WorkerError("the worker did not answer") from error
            self.hello, self._writer, self._address = hello, writer, address
            beat = self._beat()
            self._reading = asyncio.create_task(self._read(reader, writer, beat))
            self._beating = asyncio.create_task(self._ping(beat, self._reading))
            self._receiver.on_connected()

    async def close(self) -> None:
        """For good."""
        self._is_closed = True
        tasks = [task for task in (self._opening, self._beating, self._reading) if task is not None]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_CLOSE_S)

    @staticmethod
    async def _receive_hello(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Message:
        try:
            frame = await worker_protocol.receive(reader)
            if frame is None or frame[0]["kind"] != "hello":
                raise WorkerError("the worker did not say hello")
            protocol = frame[0].get("fingerprint", {}).get("protocol")
            if protocol != worker_protocol.PROTOCOL:
                raise WorkerError(
                    f"the worker has protocol {protocol}, this server "
                    f"{worker_protocol.PROTOCOL}: the package was upgraded while it ran; "
                    "restart the server"
                )
        except BaseException:
            writer.close()
            raise
        return frame[0]

    async def _keep_opening(self) -> None:
        error: Exception = WorkerError("no worker is available")
        try:
            async with asyncio.timeout(_MAX_OPEN_S):
                error = await self._open_with_retries() or error
        except Exception as other:
            error = other
        if self._writer is not None:
            return
        log.error("no worker available", extra={"reason": str(error) or type(error).__name__})
        if not isinstance(error, UnavailableError):
            error = WorkerError("no worker is available")
        self._receiver.on_unavailable(error)

    async def _open_with_retries(self) -> Exception | None:
        """The last error, if there is still no connection."""
        until, n_reported, retry_s = time.monotonic() + _PATIENCE_S, 0, _FIRST_RETRY_S
        while True:
            try:
                await self.open()
                return None
            except Exception as error:
                if isinstance(error, UnavailableError) or self._supervisor.is_stopping:
                    return error
                is_reported = isinstance(error, NightingaleError)
                n_reported += is_reported and not isinstance(error, WorkerError)
                log.warning("no worker", extra={"reason": str(error) or type(error).__name__})
                if n_reported >= _MAX_REPORTED or time.monotonic() > until:
                    return error
            await asyncio.sleep(retry_s * random.uniform(0.5, 1.0))
            retry_s = min(2 * retry_s, _LONGEST_RETRY_S)

    async def _read(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, beat: Heartbeat
    ) -> None:
        """Until the connection ends, whatever ends it."""
        blames: list[Blame] = []
        try:
            blames = await self._read_all(reader, beat)
        except asyncio.CancelledError:
            blames = [] if self._is_closed else self._blames()  # unresponsive
        except Exception as error:
            log.warning("connection to the worker lost", extra={"reason": type(error).__name__})
        finally:
            self._writer = None
            if self._beating is not None:
                self._beating.cancel()
            with suppress(Exception):
                writer.close()
            if self._receiver.on_lost(blames) and not self._is_closed:
                self.reopen()

    async def _read_all(self, reader: asyncio.StreamReader, beat: Heartbeat) -> list[Blame]:
        """Until the worker is gone; which steps are to blame for that, if any."""
        try:
            while (frame := await worker_protocol.receive(reader)) is not None:
                beat.note_message()
                if frame[0]["kind"] == "pong":
                    self._on_pong(frame[0])
                else:
                    self._receiver.on_message(*frame)
        except WorkerError as error:
            log.warning("connection to the worker lost", extra={"reason": str(error)})
        await self._until_dead()
        return self._blames()

    def _kill(self) -> None:
        """The worker of this connection; the supervisor may have the next one already."""
        if self._worker is not None:
            self._worker.kill()

    async def _until_dead(self) -> None:
        if self._worker is not None:
            await self._worker.ended(_DEATH_S)

    def _blames(self) -> list[Blame]:
        """By the step record: of a batch, all are suspected. A process that somebody else killed
        may have been innocent, so a request is suspected longer then."""
        number = self.hello.get("connection")
        steps = [it for it in step_record.read(self._address) if it.connection == number]
        max_deaths = 3 if self._worker is not None and self._worker.was_killed_from_outside else 2
        for step in steps:
            log.warning("worker died in a step", extra=step._asdict())
        return [Blame(step, max_deaths) for step in steps]

    def _on_pong(self, message: Message) -> None:
        self.worker_bytes = message["n_bytes"]
        if message["step_s"] > _STUCK_S:
            stuck = {"step_s": round(message["step_s"], 1), "stepping": message.get("stepping")}
            log.error("worker killed: stuck", extra=stuck)
            self._kill()

    def _beat(self) -> Heartbeat:
        pid = int(self.hello.get("pid", 0))
        return Heartbeat(lambda: heartbeat.activity(pid))

    async def _ping(self, beat: Heartbeat, reading: asyncio.Task[None]) -> None:
        """Each second; a worker that does not respond is killed, and not read from any more."""
        while True:
            try:
                await asyncio.sleep(heartbeat.PING_S)
                if beat.tick():
                    log.error("worker killed: unresponsive")
                    self._kill()
                    with suppress(Exception):
                        await self._until_dead()
                    reading.cancel()
                    return
                self.send({"kind": "ping"})
            except Exception:
                log.exception("no ping sent")
