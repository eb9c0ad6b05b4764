"""Between those who listen and the worker: admits, hands over, and repeats what was lost.

A request is a pure function, so when its worker dies it is asked again of the next one, without the
samples that have come already: a pause, not a loss. Knows nothing of HTTP and formats.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from itertools import count

import numpy as np

from nightingale import errors
from nightingale.core import PLANS, Plan, Word
from nightingale.errors import NightingaleError, WorkerError
from nightingale.pace import Prebuffer, RecentFactor, window_seconds
from nightingale.server import wire
from nightingale.server.admission import Admission
from nightingale.server.supervisor import Supervisor
from nightingale.server.utterance import Ask, Outcome, Samples, Utterance
from nightingale.server.wire import Message

log = logging.getLogger("nightingale.dispatch")

_PATIENCE_S = 30.0  # for a worker that dies again and again, before those who wait are told
_MAX_TOLD = 3  # tries, if the worker itself says why it cannot start
_TRY_AGAIN_S = 0.3
_PING_S, _SILENT_S = 5.0, 60.0
_STUCK_S = 180.0  # in one step; whole parts of a text take long on slow machines


@dataclass(frozen=True, slots=True)
class Limits:
    """How many at once."""

    n_speaking: int = 8  # that the worker computes beside each other
    n_waiting: int = 16  # for one of those to end
    keep_alive_s: float | None = None  # after which an idle worker is let go; None: never


class Dispatcher:
    """All requests of one front, and its connection to the worker."""

    def __init__(self, supervisor: Supervisor, limits: Limits) -> None:
        self.supervisor, self.limits = supervisor, limits
        self.admission = Admission(limits.n_speaking, limits.n_waiting)
        self.hello: Message = {}  # what the worker said about itself
        self.worker_bytes = 0
        self.n_resumed = 0
        self.heard_at = self.failed_at = 0.0  # when the last sound came, and the last failure
        self.is_draining = False
        self._numbers = count(1)
        self._open: dict[int, Utterance] = {}
        self._factor = RecentFactor()
        self._writer: asyncio.StreamWriter | None = None
        self._connecting: asyncio.Task[None] | None = None
        self._reading: asyncio.Task[None] | None = None
        self._chores: asyncio.Task[None] | None = None
        self._used_at = self._pong_at = time.monotonic()

    async def start(self) -> None:
        """A worker, ready; if it cannot be had, that is said now."""
        await self._connect()
        self._chores = asyncio.create_task(self._do_chores())

    def drain(self) -> None:
        """No new requests and no new worker from now on; may be called by a signal handler."""
        self.is_draining = self.supervisor.is_stopping = True
        self.admission.close()

    async def stop(self, drain_s: float = 30.0) -> None:
        """No new requests; those that speak may end; then the worker goes."""
        self.drain()
        until = time.monotonic() + drain_s
        while self.n_open and time.monotonic() < until:
            await asyncio.sleep(0.02)
        for utterance in list(self._open.values()):
            utterance.fail(WorkerError("the server is shutting down"))
        for task in (self._chores, self._connecting):
            if task is not None:
                task.cancel()
        await self.supervisor.stop()
        if self._reading is not None:
            await self._reading  # it ends with the worker

    @property
    def n_open(self) -> int:
        return self.n_speaking + self.n_waiting

    @property
    def n_speaking(self) -> int:
        return self.admission.n_running

    @property
    def n_waiting(self) -> int:
        return self.admission.n_queued

    @property
    def n_rejected(self) -> int:
        return self.admission.n_rejected

    @property
    def n_producing(self) -> int:
        """Streams that the worker computes now: neither over nor without room."""
        return sum(utterance.can_produce for utterance in self._open.values())

    @property
    def real_time_factor(self) -> float | None:
        """Of late, with as many streams as are being made now; None: nothing was measured yet."""
        return self._factor.at(max(1, self.n_producing))

    def utter(self, ask: Ask) -> Utterance:
        """One that is not spoken yet, but can be written to."""
        return Utterance(next(self._numbers), ask, self._send)

    @asynccontextmanager
    async def speak(self, asked: Ask | Utterance) -> AsyncIterator[Utterance]:
        """An utterance, when it is its turn; refused at once if too many wait already."""
        utterance = self.utter(asked) if isinstance(asked, Ask) else asked
        await self.admission.enter()
        begun = time.monotonic()
        self._open[utterance.number] = utterance
        try:
            self._hand_over(utterance)
            yield utterance
        finally:
            if utterance.outcome is None:
                self._send({"kind": "cancel", "id": utterance.number})
            del self._open[utterance.number]
            self.n_resumed += utterance.n_resumed
            self._used_at = time.monotonic()
            self.admission.leave(self._used_at - begun)

    def forget(self, voice: str | None) -> None:
        """A voice was deleted: the worker drops its copy, if it has one."""
        if voice is not None:
            self._send({"kind": "forget", "voice": voice})

    # The way to the worker.

    def _send(self, message: Message, payload: bytes = b"") -> None:
        """To the worker, if there is one; if not, the next one is told everything anew."""
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(wire.pack(message, payload))

    def _hand_over(self, utterance: Utterance) -> None:
        if self._writer is not None:
            self._send(utterance.asking())
        else:
            self._reconnect()

    def _reconnect(self) -> None:
        """In the background; whoever is open then is handed over."""
        if self._connecting is None or self._connecting.done():
            self._connecting = asyncio.create_task(self._try_to_connect())

    async def _try_to_connect(self) -> None:
        until, n_told = time.monotonic() + _PATIENCE_S, 0
        while time.monotonic() < until and n_told < _MAX_TOLD and not self.is_draining:
            try:
                await self._connect()
                return
            except NightingaleError as error:
                n_told += not isinstance(error, WorkerError)
                log.warning("no worker", extra={"reason": str(error)})
                await asyncio.sleep(_TRY_AGAIN_S)
        self.failed_at = time.monotonic()
        for utterance in list(self._open.values()):
            reason = "the server is shutting down" if self.is_draining else "no worker is available"
            utterance.fail(WorkerError(reason))

    async def _connect(self) -> None:
        if self._writer is not None:
            return
        reader, writer = await wire.connect(await self.supervisor.ready())
        frame = await wire.receive(reader)
        if frame is None or frame[0]["kind"] != "hello":
            raise WorkerError("the worker did not say hello")
        if self._writer is not None:  # somebody else was quicker
            writer.close()
            return
        self.hello, self._writer, self._pong_at = frame[0], writer, time.monotonic()
        self._reading = asyncio.create_task(self._read(reader, writer))
        for utterance in self._open.values():
            if utterance.outcome is None:
                self._send(utterance.asking())

    async def _read(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while (frame := await wire.receive(reader)) is not None:
                self._take(*frame)
        except WorkerError as error:
            log.warning("connection to the worker lost", extra={"reason": str(error)})
        self._writer, self.failed_at = None, time.monotonic()
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()
        is_needed = [utterance.lose() for utterance in list(self._open.values())]
        if any(is_needed):
            self._reconnect()

    def _take(self, message: Message, payload: bytes) -> None:
        kind, number = message["kind"], message.get("id")
        if kind == "pong":
            self.worker_bytes, self._pong_at = message["n_bytes"], time.monotonic()
            if message["step_s"] > _STUCK_S:
                log.error("worker killed: stuck", extra={"step_s": round(message["step_s"], 1)})
                self.supervisor.kill()
        elif number in self._open and self._open[number].outcome is None:
            self._take_part(self._open[number], message, payload)

    def _take_part(self, utterance: Utterance, message: Message, payload: bytes) -> None:
        kind = message["kind"]
        utterance.unspoken = message.get("unspoken", utterance.unspoken)
        if kind == "audio":
            self.heard_at = time.monotonic()
            self._take_audio(utterance, np.frombuffer(payload, "<f4"), message.get("idle_s", 0.0))
        elif kind == "words":
            words = [Word(*word) for word in message["words"]]
            utterance.hear_words(message["first"], words)
        elif kind == "need_voice":
            self._send({"kind": "voice", "id": utterance.number}, utterance.ask.voice_file)
            self._send(utterance.asking())
        elif kind == "end":
            ending = "stop" if message["is_complete"] else "length"
            utterance.finish(
                Outcome(
                    "cancelled" if message["is_cancelled"] else ending,  # type: ignore[arg-type]
                    message["n_samples"],
                    message["n_tokens"],
                    message["work_ms"] / 1e3,
                    tuple(message["unsaid"]),
                )
            )
        elif kind == "error":
            utterance.fail(_error(message))

    def _take_audio(self, utterance: Utterance, samples: Samples, idle_s: float) -> None:
        if not utterance.n_received:
            plan = PLANS.get(self.hello.get("plan", ""), Plan())
            utterance.prebuffer = Prebuffer(self.real_time_factor, window_seconds(plan.grid))
            utterance.is_single = bool(self.hello.get("knows_sentences"))
        measured = utterance.hear(samples, idle_s)
        if measured is not None:
            self._factor.note(max(1, self.n_producing), *measured)

    async def _do_chores(self) -> None:
        """Ask the worker how it is; end one that is silent, let go one that nobody needs."""
        while True:
            await asyncio.sleep(min(_PING_S, self.limits.keep_alive_s or _PING_S))
            now = time.monotonic()
            if self._writer is None:
                continue
            keep_s = self.limits.keep_alive_s
            if keep_s is not None and not self.n_open and now - self._used_at > keep_s:
                log.info("worker let go: idle")
                with suppress(NightingaleError):
                    await self.supervisor.stop()
            elif now - self._pong_at > _SILENT_S:
                log.error("worker killed: silent")
                self.supervisor.kill()
            else:
                self._send({"kind": "ping"})


def _error(message: Message) -> NightingaleError:
    """As it was raised in the worker, if it is one of ours."""
    kind = getattr(errors, message["error"], None)
    if not (isinstance(kind, type) and issubclass(kind, NightingaleError)):
        kind = WorkerError
    return kind(message["message"])
