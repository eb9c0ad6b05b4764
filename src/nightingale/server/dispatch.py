"""Between those who listen and the worker: admits, hands over, and repeats what was lost.

A request is a pure function, so when its worker dies it is asked again of the next one, without the
samples that have come already: a pause, not a loss. Knows nothing of HTTP and formats.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count
from weakref import WeakValueDictionary

import numpy as np

from nightingale import errors
from nightingale.core import PLANS, SAMPLES_PER_SECOND, Word
from nightingale.errors import NightingaleError, WorkerError
from nightingale.prebuffer import Prebuffer, RecentFactor, window_seconds
from nightingale.server.admission import Admission, AdmissionLimits
from nightingale.server.link import WorkerLink
from nightingale.server.supervisor import Supervisor
from nightingale.server.turn import Turn
from nightingale.server.utterance import Blame, Outcome, Samples, Utterance
from nightingale.server.worker_protocol import Message
from nightingale.server.worker_request import WorkerRequest
from nightingale.text.detection import DetectedLanguage

log = logging.getLogger("nightingale.dispatch")

_CHORES_S = 5.0
_WORKER_EXIT_S = 0.3  # then it is killed: it keeps nothing


@dataclass(frozen=True, slots=True)
class Limits:
    """How many at once."""

    n_speaking: int = 8  # that the worker computes beside each other
    n_waiting: int = 16  # for one of those to end
    keep_alive_s: float | None = None  # after which an idle worker is let go; None: never
    n_open: int | None = None  # also those that wait for text or for their reader; None: 4 times
    n_keys: int = 0  # API keys that are known; of several, none may take all that is computed
    max_factor: float = 0.9  # predicted real-time factor up to which new ones are admitted; 0: any
    queue_s: float = 30.0  # that a request waits for one of those to end, at most

    @property
    def n_at_worker(self) -> int:
        """Requests that the worker may hold: open ones, and those that are being cancelled."""
        return 2 * self.admission.n_open + 8

    @property
    def admission(self) -> AdmissionLimits:
        return AdmissionLimits(
            n_running=self.n_speaking,
            n_queued=self.n_waiting,
            n_open=self.n_open or 4 * self.n_speaking,
            n_running_per_owner=max(1, self.n_speaking - (self.n_keys > 1)),
            max_factor=self.max_factor,
            queue_s=self.queue_s,
        )


class Dispatcher:
    """All requests of one front, and its connection to the worker."""

    def __init__(self, supervisor: Supervisor, limits: Limits) -> None:
        self.supervisor, self.limits = supervisor, limits
        self.link = WorkerLink(supervisor, self)
        self.n_resumed = self.n_moved = 0
        self.heard_at = self.failed_at = 0.0  # when the last sound came, and the last failure
        self.is_draining = False
        self._numbers = count(1)
        self._open: dict[int, Utterance] = {}
        self._turns: WeakValueDictionary[int, Turn] = WeakValueDictionary()  # kept by utterances
        self._factor = RecentFactor()
        self._worker_busy_s = 0.0  # when the last sound came
        self.admission = Admission(limits.admission, self._factor.at)
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
        self.abort()
        if self._chores is not None:
            self._chores.cancel()
        await self.link.close()  # the worker drops what it was asked to do
        killing = asyncio.get_running_loop().call_later(_WORKER_EXIT_S, self.supervisor.kill)
        await self.supervisor.stop()
        killing.cancel()

    def abort(self) -> None:
        """End all utterances now, here and at the worker."""
        for number, utterance in list(self._open.items()):
            if utterance.outcome is None:
                if self._turns[number].is_at_worker:
                    self._send({"kind": "cancel", "id": number})
                utterance.fail(WorkerError("the server is shutting down"))

    @property
    def hello(self) -> Message:
        """What the worker said about itself."""
        return self.link.hello

    @property
    def worker_bytes(self) -> int:
        return self.link.worker_bytes

    @property
    def n_open(self) -> int:
        """Utterances that somebody listens to: computed, in the queue or paused."""
        return self.admission.n_open

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
    def n_paused(self) -> int:
        """Utterances that wait for text or for their reader, and hold no slot."""
        return self.admission.n_paused

    @property
    def n_producing(self) -> int:
        """Streams that the worker computes now: neither over nor without text or room."""
        return sum(self._turns[number].is_running for number in self._open)

    @property
    def real_time_factor(self) -> float | None:
        """Of late, with as many streams as are being made now; None: nothing was measured yet."""
        return self._factor.at(max(1, self.n_producing))

    def playback_slack_s(self, now: float) -> float | None:
        """Seconds until the first of the listeners has heard all; None: nobody listens yet."""
        begun = [
            utterance.clock.left_s(now)
            for utterance in self._open.values()
            if utterance.n_given and utterance.outcome is None
        ]
        return min(begun, default=None)

    def utter(self, job: WorkerRequest) -> Utterance:
        """One that is not spoken yet, but can be written to."""
        turn = Turn(next(self._numbers), job, self._send)
        self._turns[turn.utterance.number] = turn
        return turn.utterance

    @asynccontextmanager
    async def speak(
        self, asked: WorkerRequest | Utterance, owner: str = "", *, is_reserved: bool = False
    ) -> AsyncIterator[Utterance]:
        """An utterance, which is computed when it is its turn; if too many wait already, it fails.

        `owner` shares the server with others fairly: an API key or an address. Reserved: computed
        at once, outside all limits.
        """
        utterance = self.utter(asked) if isinstance(asked, WorkerRequest) else asked
        number, turn = utterance.number, self._turns[utterance.number]
        turn.reserve(self.admission, owner, self._hand_over, is_reserved=is_reserved)
        self._open[number] = utterance
        try:
            turn.start()
            yield utterance
        finally:
            turn.close()
            del self._open[number]
            self.n_resumed += utterance.n_resumed
            self._used_at = time.monotonic()

    @asynccontextmanager
    async def speak_at_once(self, job: WorkerRequest) -> AsyncIterator[Utterance]:
        """An utterance outside of admission and its limits: for the health check alone."""
        async with self.speak(job, is_reserved=True) as utterance:
            yield utterance

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
            return
        try:
            self.supervisor.check()
        except NightingaleError as error:
            utterance.fail(error)
        else:
            self.link.reopen()

    def on_connected(self) -> None:
        """A new worker is given all requests that hold a slot; the others when they get one."""
        model = self.hello.get("model", "")
        if model:
            self.supervisor.pin(model)
        weights = self.hello.get("fingerprint", {}).get("weights", {})
        digests = {name: digest[:16] for name, digest in weights.items()}
        plan = self.hello.get("explained_plan")
        max_requests = self.hello.get("max_requests")
        self.admission.limits = self.limits.admission.within(max_requests)
        log.info(
            "worker connected",
            extra={"model": model, "plan": plan, "weights": digests, "max_requests": max_requests},
        )
        for number, utterance in list(self._open.items()):
            if utterance.outcome is None and self._turns[number].is_running:
                self._ask(utterance)

    def _ask(self, utterance: Utterance) -> None:
        try:
            self._note_worker(utterance)
            self._send(self._turns[utterance.number].asking())
        except NightingaleError as error:
            log.error("request not sent to the worker", extra={"reason": str(error)})
            utterance.fail(error)

    def _note_worker(self, utterance: Utterance) -> None:
        n_moves = len(utterance.moves)
        utterance.note_worker(self.hello.get("fingerprint", {}))
        for move in utterance.moves[n_moves:]:
            self.n_moved += 1
            log.warning("stream moved to another kind of worker", extra=move.fields)

    def on_lost(self, blames: Sequence[Blame]) -> bool:
        """True if somebody waits for the next worker."""
        self.failed_at = time.monotonic()
        blamed = {blame.step.request: blame for blame in blames}
        is_needed = [
            self._turns[number].on_worker_lost(blamed.get(number))
            for number, _ in list(self._open.items())
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
        utterance.speed = message.get("speed", utterance.speed)
        if "language" in message:
            utterance.language = DetectedLanguage(*message["language"])
        if kind == "audio":
            self.heard_at = time.monotonic()
            self.supervisor.note_audio()
            self._take_audio(utterance, np.frombuffer(payload, "<f4"), message)
        elif kind == "words":
            words = [Word(*word) for word in message["words"]]
            utterance.on_words(message["first"], words)
        elif kind == "checkpoint":
            utterance.keep_checkpoint(message)
        elif kind == "need_voice":
            data = utterance.job.file_of(message.get("voice"))
            self._send({"kind": "voice", "id": utterance.number}, data)
            self._send(self._turns[utterance.number].asking())
        elif kind == "idle":
            self._turns[utterance.number].note_idle(message["n_characters"])
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

    def _take_audio(self, utterance: Utterance, samples: Samples, message: Message) -> None:
        if not utterance.n_received:
            sizes = tuple(self.hello.get("window_sizes", PLANS["live"].window_sizes))
            rtf, speed = self.real_time_factor, utterance.speed
            rtf = None if rtf is None else rtf * speed
            utterance.prebuffer = Prebuffer(rtf, window_seconds(sizes, speed))
            utterance.is_single = bool(self.hello.get("is_single"))
        utterance.keep_token_log(message.get("token_log"))
        is_pause = bool(message.get("is_pause"))
        measured = utterance.on_audio(samples, message.get("idle_s", 0.0), is_pause=is_pause)
        busy_s = message.get("busy_s", self._worker_busy_s)
        if not is_pause:  # silence is made in no time, and says nothing about the next sentence
            sound_s = utterance.speed * len(samples) / SAMPLES_PER_SECOND
            self._note_speed(measured, sound_s, busy_s)
        self._turns[utterance.number].check()

    def _note_speed(
        self, measured: tuple[float, float] | None, sound_s: float, busy_s: float
    ) -> None:
        """Streams beside each other take turns, so the time between two chunks of one says little:
        what counts is how long the worker computed for all of them, `busy_s` since its start.
        Sound is counted as if at speed 1: twice as fast, a second of it has twice the tokens."""
        n_streams, spent_s = self.n_producing, busy_s - self._worker_busy_s
        self._worker_busy_s = busy_s
        if n_streams > 1 and spent_s > 0:  # else it is another worker
            self._factor.note(n_streams, n_streams * spent_s, sound_s)
        elif measured is not None:
            self._factor.note(1, *measured)

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
