"""Between those who listen and the worker: admits, hands over, and repeats what was lost.

A request is a pure function, so when its worker dies it is asked again of the next one, without the
samples that have come already: a pause, not a loss. Knows nothing of HTTP and formats.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count

import numpy as np

from nightingale import errors
from nightingale.core import PLANS, Plan, Word
from nightingale.errors import NightingaleError, WorkerError
from nightingale.pace import Prebuffer, RecentFactor, window_seconds
from nightingale.server.admission import Admission
from nightingale.server.link import WorkerLink
from nightingale.server.supervisor import Supervisor
from nightingale.server.utterance import Ask, Blame, Outcome, Samples, Utterance
from nightingale.server.wire import Message

log = logging.getLogger("nightingale.dispatch")

_CHORES_S = 5.0


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
        self.link = WorkerLink(supervisor, self)
        self.n_resumed = 0
        self.heard_at = self.failed_at = 0.0  # when the last sound came, and the last failure
        self.is_draining = False
        self._numbers = count(1)
        self._open: dict[int, Utterance] = {}
        self._factor = RecentFactor()
        self._chores: asyncio.Task[None] | None = None
        self._used_at = time.monotonic()

    async def start(self) -> None:
        """A worker, ready; if it cannot be had, that is said now."""
        await self.link.open()
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
        if self._chores is not None:
            self._chores.cancel()
        await self.link.close()  # the worker drops what it was asked to do
        await self.supervisor.stop()

    @property
    def hello(self) -> Message:
        """What the worker said about itself."""
        return self.link.hello

    @property
    def worker_bytes(self) -> int:
        return self.link.worker_bytes

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
        try:
            async with self._opened(utterance):
                yield utterance
        finally:
            self._used_at = time.monotonic()
            self.admission.leave(self._used_at - begun)

    @asynccontextmanager
    async def speak_at_once(self, ask: Ask) -> AsyncIterator[Utterance]:
        """An utterance outside of admission and its limits: for the health check alone."""
        utterance = self.utter(ask)
        async with self._opened(utterance):
            yield utterance

    @asynccontextmanager
    async def _opened(self, utterance: Utterance) -> AsyncIterator[None]:
        self._open[utterance.number] = utterance
        try:
            self._hand_over(utterance)
            yield
        finally:
            if utterance.outcome is None:
                self._send({"kind": "cancel", "id": utterance.number})
            del self._open[utterance.number]
            self.n_resumed += utterance.n_resumed

    def forget(self, voice: str | None) -> None:
        """A voice was deleted: the worker drops its copy, if it has one."""
        if voice is not None:
            self._send({"kind": "forget", "voice": voice})

    # The connection to the worker.

    def _send(self, message: Message, payload: bytes = b"") -> None:
        self.link.send(message, payload)

    def _hand_over(self, utterance: Utterance) -> None:
        if self.link.is_open:
            self._ask(utterance)
        else:
            self.supervisor.check()
            self.link.reopen()

    def on_connected(self) -> None:
        """A new worker is given all requests that are open."""
        model = self.hello.get("model", "")
        if model:
            self.supervisor.pin(model)
        weights = self.hello.get("fingerprint", {}).get("weights", {})
        digests = {name: digest[:16] for name, digest in weights.items()}
        log.info("worker connected", extra={"model": model, "weights": digests})
        for utterance in list(self._open.values()):
            if utterance.outcome is None:
                self._ask(utterance)

    def _ask(self, utterance: Utterance) -> None:
        try:
            utterance.note_worker(self.hello.get("fingerprint", {}))
            self._send(utterance.asking())
        except NightingaleError as error:
            log.error("request not sent to the worker", extra={"reason": str(error)})
            utterance.fail(error)

    def on_lost(self, blame: Blame | None) -> bool:
        """True if somebody waits for the next worker."""
        self.failed_at = time.monotonic()
        blamed = self._open.get(blame.step.request) if blame else None
        is_needed = [
            utterance.lose(blame if utterance is blamed else None)
            for utterance in list(self._open.values())
        ]
        return any(is_needed)

    def on_unavailable(self, error: NightingaleError) -> None:
        self.failed_at = time.monotonic()
        reason = WorkerError("the server is shutting down") if self.is_draining else error
        for utterance in list(self._open.values()):
            if utterance.outcome is None:
                utterance.fail(reason)

    def on_message(self, message: Message, payload: bytes) -> None:
        number = message.get("id")
        if number in self._open and self._open[number].outcome is None:
            self._take_part(self._open[number], message, payload)

    def _take_part(self, utterance: Utterance, message: Message, payload: bytes) -> None:
        kind = message["kind"]
        utterance.unspoken = message.get("unspoken", utterance.unspoken)
        if kind == "audio":
            self.heard_at = time.monotonic()
            self.supervisor.note_audio()
            self._take_audio(utterance, np.frombuffer(payload, "<f4"), message.get("idle_s", 0.0))
        elif kind == "words":
            words = [Word(*word) for word in message["words"]]
            utterance.hear_words(message["first"], words)
        elif kind == "checkpoint":
            utterance.keep_checkpoint(message)
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
        """Stop a worker that nobody needs."""
        keep_s = self.limits.keep_alive_s
        while keep_s is not None:
            try:
                await asyncio.sleep(min(_CHORES_S, keep_s))
                is_idle = self.link.is_open and not self._open and not self.n_open
                if is_idle and time.monotonic() - self._used_at > keep_s:
                    log.info("worker stopped: idle")
                    await self.supervisor.stop()
            except Exception:
                log.exception("idle worker not stopped")


def _error(message: Message) -> NightingaleError:
    """As it was raised in the worker, if it is one of ours."""
    kind = getattr(errors, message["error"], None)
    if not (isinstance(kind, type) and issubclass(kind, NightingaleError)):
        kind = WorkerError
    return kind(message["message"])
