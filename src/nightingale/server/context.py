"""All that the routes share, and how a body becomes a request for the worker."""

from __future__ import annotations

import asyncio
import logging
import secrets
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from nightingale.audio.encode import FORMATS, Encoder
from nightingale.core import Options, Pronunciations
from nightingale.errors import TextError
from nightingale.server.cloning import Cloner
from nightingale.server.connections import ConnectionLimits, Connections
from nightingale.server.dispatch import Dispatcher
from nightingale.server.drain import Session
from nightingale.server.keys import ANYBODY, Key, Keys
from nightingale.server.listeners import is_loopback
from nightingale.server.metrics import Metrics
from nightingale.server.recent import RecentRequests
from nightingale.server.schemas import Sampling, parse_format
from nightingale.server.utterance import Samples
from nightingale.server.voice_tags import VoiceTags
from nightingale.server.voices import Voices
from nightingale.server.worker_request import WorkerRequest
from nightingale.text import markup
from nightingale.text.normalization import normalization_locale
from nightingale.text.pronunciation import Pronunciation, merged, select

log = logging.getLogger("nightingale.server")

YIELD_EVERY = 2400  # samples that are coded before others may go on


@dataclass(frozen=True, slots=True)
class HttpConfig:
    """What the person who runs the server decides."""

    host: str = "127.0.0.1"
    port: int = 8004
    max_characters: int = 20_000  # of one request
    max_body: int = 32 * 2**20  # bytes of an upload: a recording is the largest thing that comes
    origins: tuple[str, ...] = ()  # browser origins that are allowed, beside our own
    allowed_hosts: tuple[str, ...] = ()  # names in the Host header: a.b, *.a.b, or * for all
    max_prebuffer_s: float = 10.0  # when speech is made slower than it is played
    stall_s: float = 60.0  # who takes nothing for so long is taken to be gone
    connections: ConnectionLimits = field(default_factory=ConnectionLimits)

    @property
    def is_local(self) -> bool:
        """Nobody but this machine can reach it."""
        return is_loopback(self.host)

    @property
    def max_json(self) -> int:
        """Bytes of any other body, and of a WebSocket or Wyoming message: enough for the longest
        text, with every character escaped in 12 bytes."""
        return max(256 * 2**10, 13 * self.max_characters)


@dataclass(frozen=True, slots=True)
class SpeechRequest:
    """A request that was understood: what to ask of the worker, and how to send it back."""

    job: WorkerRequest
    format: str
    rate_hz: int
    is_sse: bool = False
    is_streamed: bool = True
    has_words: bool = False
    is_prebuffered: bool = True
    request_id: str = ""
    key: Key = ANYBODY
    voice_name: str | None = None  # as it was asked for

    @property
    def n_characters(self) -> int:
        return sum(map(len, self.job.text))

    @property
    def content_type(self) -> str:
        return "text/event-stream" if self.is_sse else FORMATS[self.format].content_type


@dataclass(slots=True)
class ServerContext:
    """One server."""

    config: HttpConfig
    dispatcher: Dispatcher
    voices: Voices
    keys: Keys
    metrics: Metrics
    pronunciations: tuple[Pronunciation, ...] = ()  # of the server, and of its voices
    recent: RecentRequests = field(default_factory=RecentRequests)
    sessions: set[Session] = field(default_factory=set)  # WebSocket and Wyoming connections
    connections: Connections = field(init=False)
    cloner: Cloner = field(init=False)

    def __post_init__(self) -> None:
        self.connections = Connections(self.config.connections, self.config.stall_s)
        self.connections.on_refused = lambda status: self.metrics.refused.labels(str(status)).inc()
        self.metrics.connections.set_function(lambda: len(self.connections))
        self.cloner = Cloner(self.dispatcher.supervisor.config)

    def worker_request(
        self, text: str, voice: str | None, sampling: Sampling, key: Key = ANYBODY
    ) -> WorkerRequest:
        """A whole text; the seed is drawn here if it is to be a new one, for it must not change."""
        if not any(character.isalnum() for character in text):
            raise TextError("there is nothing to say: give at least one word as input")
        self.check_length(len(text))
        found = self.voices.find(voice, key)
        named = self.voice_tags(sampling, key).feed(text)
        return WorkerRequest(
            self.options(sampling, voice), [text], voice=found.digest, voice_file=found.data,
            voices=named,
        )  # fmt: skip

    def voice_tags(self, sampling: Sampling, key: Key = ANYBODY) -> VoiceTags:
        """For a text with these options."""
        return VoiceTags(
            lambda name: self.voices.find(name, key), is_on=sampling.markup != markup.OFF
        )

    def options(self, sampling: Sampling, voice: str | None = None) -> dict[str, Any]:
        options = sampling.options()
        options.pop("pronunciations", None)
        if found := self._pronunciations(sampling, voice):
            options["pronunciations"] = found
        if options.get("seed", 0) < 0:
            options["seed"] = secrets.randbelow(2**31)
        # refused now if a value is out of range, and not when it is its turn
        normalization_locale(Options(**options).normalization, None)
        return options

    def _pronunciations(self, sampling: Sampling, voice: str | None) -> Pronunciations:
        """The server's, those of the voice, and the request's, which outdo the others."""
        asked = [Pronunciation(**vars(entry)) for entry in sampling.pronunciations or ()]
        language = sampling.language or "en"
        kept, given = (select(e, language, voice) for e in (self.pronunciations, asked))
        return merged(kept, given)

    def check_length(self, n_characters: int) -> None:
        if n_characters > self.config.max_characters:
            raise TextError(
                f"the text has {n_characters} characters, but at most {self.config.max_characters} "
                "are allowed per request; split it"
            )

    @property
    def n_open(self) -> int:
        """Utterances under way."""
        return self.dispatcher.n_open

    def abort(self) -> None:
        """End all utterances with an error."""
        self.dispatcher.abort()


def check_format(name: str, rate_hz: int | None) -> tuple[str, int]:
    """Format and rate in Hz, tried; a mistake here is reported before any work."""
    format_, rate_hz = parse_format(name, rate_hz)
    with closing(Encoder(format_, rate_hz)) as encoder:
        return format_, encoder.rate_hz


async def coded(encoder: Encoder, samples: Samples) -> bytes:
    """What `feed` gives, with a breath now and then: a second of Opus is 16 ms of work, and the
    others wait."""
    parts = []
    for at in range(0, len(samples), YIELD_EVERY):
        parts.append(encoder.feed(samples[at : at + YIELD_EVERY]))
        await asyncio.sleep(0)
    return b"".join(parts)
