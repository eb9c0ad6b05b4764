"""One request in the front: what was asked, what has come so far, and how it ended."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from nightingale.core import SAMPLES_PER_SECOND, Word
from nightingale.errors import NightingaleError, WorkerError
from nightingale.server.wire import Message

AHEAD = 8 * SAMPLES_PER_SECOND  # samples that may be made before their listener takes them
_STEP = SAMPLES_PER_SECOND // 4  # room is told in steps of this, not for every chunk
_MAX_FRUITLESS = 12  # workers that may die in a row over a request without a new sample

Samples = NDArray[np.float32]
Event = Samples | list[Word]
Ending = Literal["stop", "length", "cancelled"]
Send = Callable[[Message], None]


@dataclass(slots=True)
class Ask:
    """A request that can be repeated: the same again gives the same sound."""

    options: dict[str, Any]  # with the seed
    text: list[str] = field(default_factory=list)
    is_arriving: bool = False  # it is cut as text that comes piece by piece
    is_open: bool = False  # and more may come
    voice: str | None = None  # SHA-256 of its file; None: the model's own
    voice_file: bytes = b""


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
    """

    def __init__(self, number: int, ask: Ask, send: Send) -> None:
        self.number, self.ask, self._send = number, ask, send
        self._events: asyncio.Queue[Event | Outcome | NightingaleError] = asyncio.Queue()
        self._n_at_asking = self._n_fruitless = 0
        self._n_allowed = AHEAD
        self.n_received = self.n_taken = 0  # samples: from the worker, by the listener
        self.n_resumed = 0
        self.words: list[Word] = []
        self.is_cancelled = False
        self.outcome: Outcome | None = None
        self.clock = PlayClock()

    def put(self, text: str) -> None:
        """More text; kept, for it may have to be said to another worker."""
        if not self.ask.is_open:
            return
        self.ask.text.append(text)
        self._send({"kind": "text", "id": self.number, "text": text, "is_last": False})

    def end(self) -> None:
        """No more text comes."""
        self.ask.is_open = False
        self._send({"kind": "text", "id": self.number, "text": "", "is_last": True})

    def cancel(self) -> None:
        """No sound comes any more; then the outcome, when all words that were begun are known."""
        self.is_cancelled = True
        self._send({"kind": "cancel", "id": self.number})

    def word_at(self, seconds: float) -> Word | None:
        """What is being said then, or was said last."""
        return next((word for word in reversed(self.words) if word.start_s <= seconds), None)

    async def __aiter__(self) -> AsyncIterator[Event]:
        while True:
            event = await self._events.get()
            if isinstance(event, Outcome):
                return
            if isinstance(event, NightingaleError):
                raise event
            if isinstance(event, np.ndarray):
                if self.is_cancelled:
                    continue
                self._take(len(event))
            yield event

    def _take(self, n_samples: int) -> None:
        self.n_taken += n_samples
        if self.n_taken + AHEAD - self._n_allowed >= _STEP:
            self._n_allowed = self.n_taken + AHEAD
            self._send({"kind": "allow", "id": self.number, "n_samples": self._n_allowed})

    # What the dispatcher calls.

    def asking(self) -> Message:
        """The whole request, from where it stands: for the first worker or for the next one."""
        ask = self.ask
        self._n_at_asking = self.n_received
        return {
            "kind": "speak",
            "id": self.number,
            "text": ask.text,
            "is_arriving": ask.is_arriving,
            "is_open": ask.is_open,
            "voice": ask.voice,
            "options": ask.options,
            "n_skip": self.n_received,
            "n_allowed": self._n_allowed,
        }

    def lose(self) -> bool:
        """Its worker died; True if it is to be asked again."""
        if self.outcome is not None:
            return False
        if self.is_cancelled:
            self.finish(Outcome("cancelled", self.n_received))
            return False
        self.n_resumed += 1
        is_fruitless = self.n_received == self._n_at_asking
        self._n_fruitless = self._n_fruitless + 1 if is_fruitless else 0
        if self._n_fruitless > _MAX_FRUITLESS:
            self.fail(WorkerError(f"{self._n_fruitless} workers died over this request"))
            return False
        return True

    def hear(self, samples: Samples) -> None:
        is_full = self.n_received + len(samples) >= self._n_allowed
        self.n_received += len(samples)
        self.clock.note(len(samples) / SAMPLES_PER_SECOND, is_full or self.ask.is_open)
        self._events.put_nowait(samples)

    def hear_words(self, first: int, words: list[Word]) -> None:
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


class PlayClock:
    """What somebody would notice who plays the sound from the first sample on."""

    def __init__(self) -> None:
        self.asked_at = time.monotonic()
        self.first_at: float | None = None
        self.gaps_s: list[float] = []
        self._dry_at = 0.0

    def note(self, seconds: float, is_excused: bool) -> None:
        """So much came now. A gap is excused if the listener or the writer was the slow one."""
        now = time.monotonic()
        if self.first_at is None:
            self.first_at = self._dry_at = now
        if now > self._dry_at:
            if not is_excused:
                self.gaps_s.append(now - self._dry_at)
            self._dry_at = now
        self._dry_at += seconds

    @property
    def first_s(self) -> float | None:
        return None if self.first_at is None else self.first_at - self.asked_at
