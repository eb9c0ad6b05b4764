"""One utterance under way: what its listener holds."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from nightingale.audio.pauses import JoinState
from nightingale.backends.base import DecodedWindow, TokenEvent, WindowJob
from nightingale.core import SAMPLES_PER_SECOND, TOKENS_PER_SECOND, AudioChunk, Timings, Word
from nightingale.text.detection import DetectedLanguage
from nightingale.text.readable import MAX_UNSPOKEN
from nightingale.text.split import TextPart
from nightingale.text.words import Span
from nightingale.token_log import LoggedAttempt, TokenLog


@dataclass(slots=True)
class Part:
    """A part of the text: where its words are, and which of its tokens each speech token says."""

    spans: list[Span]
    places: Sequence[int]  # grows while it is spoken
    start_s: float
    speed: float = 1.0
    is_settled: bool = False  # `start_s` is exact

    def words(self) -> Iterator[Word]:
        """Those that have begun; the last one ends where speech has come to."""
        begun = [
            next((at for at, place in enumerate(self.places) if place >= span.first), None)
            for span in self.spans
        ]
        known = [at for at in begun if at is not None]
        ends = [*known[1:], len(self.places)]
        for span, start, end in zip(self.spans, known, ends, strict=False):
            times = (self.start_s + at / TOKENS_PER_SECOND / self.speed for at in (start, end))
            yield Word(span.text, *(max(0.0, time) for time in times))


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Between two parts of a text: enough to go on with the next one, elsewhere or later."""

    n_parts: int  # that are spoken
    joined: JoinState
    n_tokens: int = 0
    is_complete: bool = True
    unsaid: tuple[str, ...] = ()
    log: TokenLog | None = None  # of the part behind it, to go on in the middle of that

    @classmethod
    def start(cls) -> Checkpoint:
        """Before the first part."""
        return cls(0, JoinState(0, 0, np.zeros(0, np.float32)))

    def to_json(self) -> dict[str, Any]:
        spoken = {"n_tokens": self.n_tokens, "is_complete": self.is_complete}
        return {
            "n_parts": self.n_parts, **self.joined.to_json(), **spoken, "unsaid": list(self.unsaid)
        }  # fmt: skip

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> Checkpoint:
        return cls(
            int(stored["n_parts"]),
            JoinState.from_json(stored),
            int(stored.get("n_tokens", 0)),
            bool(stored.get("is_complete", True)),
            tuple(stored.get("unsaid", ())),
        )


class Clock:
    """Laps in milliseconds, summed up by what they were for."""

    def __init__(self) -> None:
        self.spent_ms = dict.fromkeys(Timings.__dataclass_fields__, 0.0)
        self.restart()

    def restart(self) -> None:
        self._last = time.perf_counter()

    def lap(self, purpose: str) -> None:
        now = time.perf_counter()
        self._last, passed = now, now - self._last
        self.add(purpose, 1e3 * passed)

    def add(self, purpose: str, spent_ms: float) -> None:
        """A lap that was measured elsewhere."""
        self.spent_ms[purpose] += spent_ms


@dataclass(slots=True)
class SpeechState:
    """How far an utterance has come. Written by who speaks; a listener sees `SpeechStream`."""

    tokens: list[int] = field(default_factory=list)
    n_tokens: int = 0
    is_complete: bool = True
    unsaid: list[str] = field(default_factory=list)
    unspoken: list[str] = field(default_factory=list)
    left: TextPart | None = None  # what the last attempt did not say
    is_cancelled: bool = False
    parts: list[Part] = field(default_factory=list)
    n_samples: int = 0
    n_characters: int = 0
    checkpoint: Checkpoint | None = None
    log: TokenLog = field(default_factory=lambda: TokenLog(0))  # of the part under way
    known: LoggedAttempt = field(default_factory=LoggedAttempt)  # that is repeated
    clock: Clock = field(default_factory=Clock)
    token_number: int | None = None  # of the token engine's request that is under way
    event: TokenEvent | None = None  # its next token, computed beside others'
    window_job: WindowJob | None = None  # what is computed next is no token but this window
    decoded: DecodedWindow | None = None  # what came of it, computed beside others'
    language: DetectedLanguage | None = None  # where it was to be detected
    speed: float = 1.0  # of the part that is spoken: the request's, the voice's and the mark-up's

    def note_ignored(self, tag: str) -> None:
        """Mark-up that is not followed is reported with the characters that are not read."""
        if tag not in self.unspoken and len(self.unspoken) < MAX_UNSPOKEN:
            self.unspoken.append(tag)

    def take_event(self) -> TokenEvent | None:
        event, self.event = self.event, None
        return event

    def take_decoded(self) -> DecodedWindow | None:
        decoded, self.decoded = self.decoded, None
        return decoded

    def open_log(self, number: int, key: str, known: TokenLog | None) -> TokenLog:
        """A new part begins, of which something may be known; raises if that is not its log."""
        if known is not None:
            known.check(number, key)
        self.log = TokenLog(number, key=key)
        return known or self.log

    def open_part(self, spans: list[Span], places: Sequence[int]) -> None:
        """A new part of the text begins where the sound has come to, or a little later."""
        self.parts.append(Part(spans, places, self.n_samples / SAMPLES_PER_SECOND, self.speed))

    def settle_part(self, start: int) -> None:
        """Its first sample would be this one, had no silence been cut off."""
        if self.parts and not self.parts[-1].is_settled:
            self.parts[-1].start_s = start / SAMPLES_PER_SECOND
            self.parts[-1].is_settled = True


class SpeechStream:
    """Chunks of sound, one after the other; what is known of them so far; and a way to stop.

    The work is done by whoever asks for the next chunk. Any thread may call `cancel`.
    """

    def __init__(self, state: SpeechState, steps: Iterator[AudioChunk | None]) -> None:
        self._state, self._steps = state, steps  # some steps end in sound

    def __iter__(self) -> Iterator[AudioChunk]:
        return self

    def __next__(self) -> AudioChunk:
        chunk = None
        while chunk is None:
            chunk = self.step()
        return chunk

    def step(self) -> AudioChunk | None:
        """One token, or one window, further; for who shares the model among many."""
        chunk = next(self._steps)
        self._state.n_samples += len(chunk.samples) if chunk else 0
        return chunk

    @property
    def token_number(self) -> int | None:
        """What the next step needs is one more token of this request of the token engine.

        None: it needs something else, such as a window or the first token of a text.
        """
        state = self._state
        return None if state.window_job or state.is_cancelled else state.token_number

    @property
    def window_job(self) -> WindowJob | None:
        """The window that the next step decodes; None: it needs something else."""
        return None if self._state.is_cancelled else self._state.window_job

    def give(self, event: TokenEvent, spent_ms: float) -> None:
        """The token for the next step, which was computed beside others'."""
        self._state.event = event
        self._state.clock.add("tokens_ms", spent_ms)

    def give_window(self, decoded: DecodedWindow) -> None:
        """The window for the next step, likewise."""
        self._state.decoded = decoded

    def cancel(self) -> None:
        """Stop after the step that is being computed; no chunk comes any more."""
        self._state.is_cancelled = True
        self._state.is_complete = False

    @property
    def tokens(self) -> tuple[int, ...]:
        """Speech tokens that stand for sound."""
        return tuple(self._state.tokens)

    @property
    def n_tokens(self) -> int:
        """All speech tokens, those without sound too."""
        return self._state.n_tokens

    @property
    def n_samples(self) -> int:
        """Samples that were handed out."""
        return self._state.n_samples

    @property
    def n_characters(self) -> int:
        """Characters of those parts of the text that are spoken."""
        return self._state.n_characters

    @property
    def is_complete(self) -> bool:
        """False: a part of the text was not said."""
        return self._state.is_complete

    @property
    def is_cancelled(self) -> bool:
        return self._state.is_cancelled

    @property
    def unsaid(self) -> tuple[str, ...]:
        """Text that was not said, where the model can tell."""
        return tuple(self._state.unsaid)

    @property
    def unspoken(self) -> tuple[str, ...]:
        """Characters that the model cannot read and tags that are not followed, each once."""
        return tuple(self._state.unspoken)

    @property
    def language(self) -> DetectedLanguage | None:
        """What language the text is in, if that was to be detected and is known yet."""
        return self._state.language

    @property
    def speed(self) -> float:
        """At which the part under way is spoken: the request's and the voice's together."""
        return self._state.speed

    @property
    def parts(self) -> tuple[Part, ...]:
        """Parts of the text that have begun, from models that can tell where words are."""
        return tuple(self._state.parts)

    @property
    def checkpoint(self) -> Checkpoint | None:
        """Behind the last part of the text that is spoken."""
        return self._state.checkpoint

    @property
    def token_log(self) -> TokenLog:
        """Of the part that is being spoken."""
        return self._state.log

    @property
    def words(self) -> list[Word]:
        """Words so far and when they are said, from models that can tell; else parts of the text.

        Tokens run ahead of the sound: a word may be here before it can be heard.
        """
        return [word for part in self._state.parts for word in part.words()]

    def word_at(self, seconds: float) -> Word | None:
        """What is being said then, or was said last: for who stops listening there."""
        return next((word for word in reversed(self.words) if word.start_s <= seconds), None)

    @property
    def timings(self) -> Timings:
        """Where the time went so far, without that of the listener."""
        return Timings(**self._state.clock.spent_ms)
