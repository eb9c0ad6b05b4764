"""The speech tokens of a part of a text so far: enough to go on with it in the middle, elsewhere.

Another processor or backend need not draw the same tokens, or find the same first audible sample:
what was decided is written down here and repeated. A log knows its part: the digest covers the
seed, the text and every entry, so that a changed log, or another request's, is refused.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field, replace
from typing import Any

from nightingale.backends.base import TokenEvent
from nightingale.core import END_OF_SPEECH
from nightingale.errors import ResumeMismatchError

_MAX_ATTEMPTS, _MAX_TOKENS = 16, 2**16


@dataclass(slots=True)
class LoggedAttempt:
    """One run of the token engine over a text."""

    tokens: list[int] = field(default_factory=list)
    places: list[int] = field(default_factory=list)  # of the text, from models that can tell
    is_said: bool = True  # False: speech ended before the text did
    first_audible: int | None = None  # sample that opened the part, if that was looked for

    def note(self, event: TokenEvent, known: LoggedAttempt) -> TokenEvent:
        """Write down a token; what is `known` from elsewhere is as it was decided there."""
        at = len(self.tokens)
        if at < len(known.tokens):
            if event.token != known.tokens[at]:
                raise ResumeMismatchError(
                    "this backend does not repeat the tokens of the log; send the request again"
                )
            position = known.places[at] if known.places else None
            is_said = known.is_said or event.token != END_OF_SPEECH
            event = replace(event, position=position, is_said=is_said)
        self.tokens.append(event.token)
        if event.position is not None:
            self.places.append(event.position)
        self.is_said = event.is_said
        return event


@dataclass(slots=True)
class TokenLog:
    """Of the part behind `n_parts` whole ones; grows while it is spoken."""

    n_parts: int
    attempts: list[LoggedAttempt] = field(default_factory=list)
    digest: str = ""  # of a log that came from elsewhere
    key: str = ""  # seed and text of the part, set by who speaks it

    def attempt(self, number: int) -> LoggedAttempt:
        """What is known of an attempt; nothing: an empty one."""
        return self.attempts[number] if number < len(self.attempts) else LoggedAttempt()

    def begin(self) -> LoggedAttempt:
        self.attempts.append(LoggedAttempt())
        return self.attempts[-1]

    def check(self, n_parts: int, key: str) -> None:
        """Raises unless it is the log of this part of this request."""
        if self.n_parts != n_parts or self.digest != self._digest(key):
            raise ResumeMismatchError(
                "the token log that came with this stream is not the one of its text and seed; "
                "send the request again"
            )

    def to_json(self) -> dict[str, Any]:
        """A snapshot: another thread packs it while this log grows."""
        return {**self._entries(), "digest": self._digest(self.key)}

    @classmethod
    def from_json(cls, stored: dict[str, Any]) -> TokenLog:
        attempts = [_attempt(one) for one in stored["attempts"]]
        if len(attempts) > _MAX_ATTEMPTS:
            raise ValueError(f"{len(attempts)} attempts")
        return cls(int(stored["n_parts"]), attempts, str(stored["digest"]))

    def _entries(self) -> dict[str, Any]:
        attempts = [
            [[*it.tokens], [*it.places], it.is_said, it.first_audible] for it in self.attempts
        ]
        return {"n_parts": self.n_parts, "attempts": attempts}

    def _digest(self, key: str) -> str:
        known = json.dumps([key, self._entries()], separators=(",", ":"))
        return hashlib.sha256(known.encode()).hexdigest()[:32]


def _attempt(stored: list[Any]) -> LoggedAttempt:
    tokens, places, is_said, first = stored
    if max(len(tokens), len(places)) > _MAX_TOKENS:
        raise ValueError(f"{len(tokens)} tokens")
    numbers = [int(token) for token in tokens], [int(place) for place in places]
    return LoggedAttempt(*numbers, bool(is_said), None if first is None else int(first))
