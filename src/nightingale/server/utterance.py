"""One request in the front: what was asked, what has come so far, and how it ended."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from nightingale.audio.audible import first_audible
from nightingale.core import SAMPLES_PER_SECOND, Word
from nightingale.errors import (
    NightingaleError,
    PoisonRequestError,
    ResumeMismatchError,
    WorkerError,
)
from nightingale.prebuffer import Prebuffer, part_seconds
from nightingale.server.fingerprint import Fingerprint, decisive, difference
from nightingale.server.play_clock import PlayClock
from nightingale.server.step_record import Step
from nightingale.server.voices import VoiceFile
from nightingale.server.worker_protocol import Message
from nightingale.server.worker_request import WorkerRequest, voice_digests
from nightingale.text.detection import DetectedLanguage

AHEAD = 8 * SAMPLES_PER_SECOND  # samples that may be made before their listener takes them
_STEP = SAMPLES_PER_SECOND // 4  # room is announced in steps of this, not for every chunk
_MAX_SILENCE = SAMPLES_PER_SECOND  # samples of leading silence that are held back, at most
_MAX_FRUITLESS = 12  # workers that may die in a row over a request without a new sample
_MAX_BLAMED = 4  # of them, in a step of this request

Samples = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Move:
    """From here on, the samples are another worker's: of the same tokens, but not the same bits."""

    n_samples: int  # before it
    differing: tuple[str, ...]  # names in the fingerprints of the two

    @property
    def fields(self) -> dict[str, Any]:
        """For a listener."""
        start_s = round(self.n_samples / SAMPLES_PER_SECOND, 3)
        return {"start": start_s, "differing": list(self.differing)}


Event = Samples | list[Word] | Move
Ending = Literal["stop", "length", "cancelled"]
Send = Callable[[Message], None]
OnHold = Callable[[float], Awaitable[None]]  # so many seconds of sound are held back


@dataclass(frozen=True, slots=True, eq=False)
class Arrival:
    """A chunk from the worker."""

    samples: Samples
    at: float
    is_excused: bool  # if it came late, then because of the listener or the writer


@dataclass(frozen=True, slots=True)
class Blame:
    """A step that a worker was computing when it died, or had to be killed."""

    step: Step
    max_deaths: int  # in this step; then the request is not tried again


@dataclass(frozen=True, slots=True)
class Outcome:
    """How it went, once it is over."""

    ending: Ending
    n_samples: int
    n_tokens: int = 0
    work_s: float = 0.0
    unsaid: tuple[str, ...] = ()


class Utterance:
    """Sound and words as they come: `async for event in utterance`, then `outcome`.

    `send` is how it reaches whatever worker there is; that this changes leaves no trace here.
    Time zero is when the request was received: read and understood, and not yet in any queue. Of
    text that comes in pieces, it is when the first piece came.
    """

    def __init__(
        self,
        number: int,
        job: WorkerRequest,
        send: Send,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.number, self.job, self._send, self._now = number, job, send, clock
        self._events: asyncio.Queue[Arrival | list[Word] | Move | Outcome | NightingaleError] = (
            asyncio.Queue()
        )
        self._n_at_asking = self._n_fruitless = 0
        self._deaths = Counter[Step]()  # of workers, in steps of this request, without a new sample
        self._checkpoint: Message | None = None  # behind the last part of the text that is whole
        self._token_log: Message | None = None  # of the part behind it, as far as it was heard
        self._fingerprint: Fingerprint | None = None  # of the worker that gave the last sample
        self.moves: list[Move] = []
        self._n_allowed = AHEAD
        self.n_received = self.n_taken = 0  # samples: from the worker, out of the queue
        self.n_given = 0  # samples that were not held back, or not any more
        self.n_resumed = 0
        self.words: list[Word] = []
        self.unspoken: list[str] = []  # characters that the model cannot read
        self.is_cancelled = False
        self.outcome: Outcome | None = None
        self.clock = PlayClock(self._now())
        self.prebuffer = Prebuffer()
        self.prebuffer_s = 0.0  # from the first chunk's arrival until it was given
        self._was_full = self._was_lost = False  # since the last chunk
        self._last_chunk: tuple[float, float] | None = None  # time and sound
        self.is_single = False  # the model speaks sentence by sentence
        # Of its speech; the worker knows better: a voice may have one of its own.
        self.speed = float(job.options.get("speed", 1.0))
        self.language: DetectedLanguage | None = None  # where that was asked for
        self._parts: tuple[int, bool, list[float]] = (-1, False, [])  # of so many pieces, or of all

    def put(self, text: str, voices: Mapping[str, VoiceFile] | None = None) -> None:
        """More text, and the voices that it names first; kept, for another worker may need it."""
        if not self.job.is_open:
            return
        if not self.job.text:
            self.clock.asked_at = self._now()
        self.job.text.append(text)
        self.job.voices.update(voices or {})
        named = {"voices": voice_digests(voices)} if voices else {}
        self._send({"kind": "text", "id": self.number, "text": text, "is_last": False, **named})

    def end(self) -> None:
        """No more text comes."""
        self.job.is_open = False
        self._send({"kind": "text", "id": self.number, "text": "", "is_last": True})

    def cancel(self) -> None:
        """No sound comes any more; then the outcome, when all words that were begun are known."""
        self.is_cancelled = True
        self._send({"kind": "cancel", "id": self.number})

    def word_at(self, seconds: float) -> Word | None:
        """What is being said then, or was said last."""
        return next((word for word in reversed(self.words) if word.start_s <= seconds), None)

    @property
    def first_ms(self) -> float | None:
        """From the request to the first audible sample; None: only silence so far."""
        first_s = self.clock.first_s
        return None if first_s is None else round(1e3 * first_s, 1)

    @property
    def detected(self) -> dict[str, Any]:
        """The language, where it was to be detected; else nothing."""
        return self.language.fields if self.language else {}

    @property
    def timing(self) -> str:
        """For the header Server-Timing."""
        first = [] if self.first_ms is None else [f"first-audio;dur={self.first_ms}"]
        return ", ".join([*first, f"prebuffer;dur={1e3 * self.prebuffer_s:.1f}"])

    @property
    def report(self) -> dict[str, Any]:
        """What a listener noticed, for receipts."""
        gaps_s = self.clock.gaps_s
        gaps = {"gaps": len(gaps_s), "gap_seconds": round(sum(gaps_s), 3)}
        rtf = self.prebuffer.measured_rtf
        speed = {"real_time_factor": None if rtf is None else round(rtf, 3)}
        moved = {"moved": [move.fields for move in self.moves]}
        return {"first_audio_ms": self.first_ms, **speed, **gaps, **moved}

    @property
    def parts_s(self) -> list[float]:
        """Seconds that the parts of the text take to say, as far as they are written."""
        job = self.job
        if self._parts[:2] != (len(job.text), job.is_open):
            parts = part_seconds(
                "".join(job.text),
                is_arriving=job.is_arriving,
                is_open=job.is_open,
                is_single=self.is_single,
            )
            self._parts = len(job.text), job.is_open, parts
        return [seconds / self.speed for seconds in self._parts[2]]

    @property
    def can_produce(self) -> bool:
        """The worker has something to do for it, and room."""
        is_over = self.is_cancelled or self.outcome is not None
        return not is_over and self.n_received < self._n_allowed

    async def __aiter__(self) -> AsyncIterator[Event]:
        while (event := await self._next()) is not None:
            if not isinstance(event, Arrival):
                yield event
            elif not self.is_cancelled:
                self.n_given += len(event.samples)
                yield event.samples

    async def paced(
        self, max_wait_s: float, on_hold: OnHold | None = None
    ) -> AsyncGenerator[Event]:
        """The same for who plays it as it comes: held back at first, until the rest can be made in
        time, but no longer than `max_wait_s`; and until there is something audible."""
        held: list[Arrival | list[Word] | Move] = []
        is_over = False
        while not is_over and (wait_s := self._wait_s(held, max_wait_s)) != 0:
            try:
                async with asyncio.timeout(wait_s):
                    event = await self._next()
            except TimeoutError:
                break
            is_over = event is None
            if event is not None:
                held.append(event)
            if isinstance(event, Arrival) and on_hold is not None:
                await on_hold(self.prebuffer.made_s)
        begun_at = self._now()
        self.prebuffer_s = begun_at - (self.prebuffer.first_at or begun_at)
        for event in held:
            if (given := self._give(event, begun_at)) is not None:
                yield given
        while not is_over and (event := await self._next()) is not None:
            if (given := self._give(event, begun_at)) is not None:
                yield given

    def _wait_s(self, held: list[Arrival | list[Word] | Move], max_wait_s: float) -> float | None:
        """How long what is held must wait if nothing new comes; None: until something does."""
        sound = [event.samples for event in held if isinstance(event, Arrival)]
        if self.is_cancelled or not sound:
            return None
        is_silent = all(first_audible(samples) is None for samples in sound)
        if is_silent and sum(map(len, sound)) < _MAX_SILENCE:
            return None
        start_at = self.prebuffer.start_at(self.parts_s)
        return max(0.0, min(start_at, self.prebuffer.first_at + max_wait_s) - self._now())

    def _give(self, event: Arrival | list[Word] | Move, begun_at: float) -> Event | None:
        if not isinstance(event, Arrival):
            return event
        if self.is_cancelled:
            return None
        self.n_given += len(event.samples)
        self.clock.note(event.samples, max(event.at, begun_at), event.is_excused)
        return event.samples

    async def _next(self) -> Arrival | list[Word] | Move | None:
        """What came next; None: it is over."""
        event = await self._events.get()
        if isinstance(event, Outcome):
            return None
        if isinstance(event, NightingaleError):
            raise event
        if isinstance(event, Arrival) and not self.is_cancelled:
            self._take(len(event.samples))
        return event

    def _take(self, n_samples: int) -> None:
        self.n_taken += n_samples
        if self.n_taken + AHEAD - self._n_allowed >= _STEP:
            self._n_allowed = self.n_taken + AHEAD
            self._send({"kind": "allow", "id": self.number, "n_samples": self._n_allowed})

    # What the dispatcher calls.

    def asking(self) -> Message:
        """The whole request, from where it stands: for the first worker or for the next one."""
        job = self.job
        self._n_at_asking = self.n_received
        return {
            "kind": "speak",
            "id": self.number,
            "text": job.text,
            "is_arriving": job.is_arriving,
            "is_open": job.is_open,
            "voice": job.voice,
            "voices": voice_digests(job.voices),
            "options": job.options,
            "n_skip": self.n_received,
            "n_allowed": self._n_allowed,
            "resume": self._checkpoint if self.n_received else None,
            "token_log": self._token_log if self.n_received else None,
            "is_suspect": bool(self._deaths),  # computed alone, so that the next death names one
        }

    def note_worker(self, fingerprint: Fingerprint) -> None:
        """A worker is there that would speak it. If another one has begun, the stream is moved to
        this one; raises if that cannot be."""
        if not self.n_received or self._fingerprint is None:
            self._fingerprint, self._checkpoint, self._token_log = fingerprint, None, None
        elif differing := difference(self._fingerprint, fingerprint):
            if named := decisive(differing):
                raise ResumeMismatchError(
                    "the stream was begun by a worker that is gone, and the next one cannot "
                    f"continue it (another {', '.join(named)}); send the request again"
                )
            self._fingerprint = fingerprint
            self.moves.append(Move(self.n_received, differing))
            self._events.put_nowait(self.moves[-1])

    def keep_token_log(self, log: Message | None) -> None:
        """Of the part whose samples have just come."""
        self._token_log = log

    def keep_checkpoint(self, message: Message) -> None:
        """The next worker computes only what comes behind it."""
        self._token_log = None
        self._checkpoint = {name: message[name] for name in ("checkpoint", "n_words", "work_ms")}

    def on_worker_lost(self, blame: Blame | None = None) -> bool:
        """Its worker died, perhaps in a step of this request; True if it is to be asked again."""
        if self.outcome is not None:
            return False
        if self.is_cancelled:
            self.finish(Outcome("cancelled", self.n_received))
            return False
        self.n_resumed += 1
        self._was_lost = True
        if self.n_received > self._n_at_asking:
            self._n_fruitless = 0
            self._deaths.clear()
        else:
            self._n_fruitless += 1
        if blame is not None:
            self._deaths[blame.step] += 1
            is_poison = self._deaths[blame.step] >= blame.max_deaths
            if is_poison or self._deaths.total() >= _MAX_BLAMED:
                n = self._deaths.total()
                self.fail(
                    PoisonRequestError(
                        f"the worker process failed {n} times while it processed this request; "
                        "it is not tried again: change the text or the options"
                    )
                )
                return False
        if self._n_fruitless > _MAX_FRUITLESS:
            self.fail(
                WorkerError(f"the worker process died {self._n_fruitless} times on this request")
            )
            return False
        return True

    def on_audio(
        self, samples: Samples, idle_s: float = 0.0, *, is_pause: bool = False
    ) -> tuple[float, float] | None:
        """A chunk, for which the worker waited `idle_s` for text.

        Returns the time and the sound (as long as it would be at speed 1) of the chunk before, if
        that time was spent on making it: the last chunk is no measure, for it holds what was kept
        back to look ahead.
        """
        now, seconds = self._now(), len(samples) / SAMPLES_PER_SECOND
        is_measure = not (self._was_full or self._was_lost or is_pause)
        busy_s = self.prebuffer.note(seconds, now, idle_s=idle_s, is_measure=is_measure)
        measured = self._last_chunk
        self._last_chunk = None if busy_s is None else (busy_s, seconds * self.speed)
        self.n_received += len(samples)
        self._events.put_nowait(Arrival(samples, now, self._was_full or idle_s > 0))
        self._was_full, self._was_lost = self.n_received >= self._n_allowed, False
        return measured

    def on_words(self, first: int, words: list[Word]) -> None:
        """From the `first` on; those that came from an earlier worker are known."""
        fresh = words[max(0, len(self.words) - first) :]
        self.words += fresh
        if fresh:
            self._events.put_nowait(fresh)

    def finish(self, outcome: Outcome) -> None:
        self.outcome = outcome
        self._events.put_nowait(outcome)

    def fail(self, error: NightingaleError) -> None:
        self.outcome = Outcome("cancelled", self.n_received)
        self._events.put_nowait(error)
