"""What is written down of an utterance when it is over: one log line and the counters.

The same for HTTP, WebSocket and Wyoming. Never what was said: only how much of it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from starlette.websockets import WebSocketDisconnect

from nightingale.core import SAMPLES_PER_SECOND
from nightingale.errors import BusyError, NightingaleError, RequestError, SpeechError
from nightingale.server.api_errors import APIError
from nightingale.server.keys import ANYBODY, Key

if TYPE_CHECKING:
    from nightingale.server.context import ServerContext
    from nightingale.server.utterance import Utterance

log = logging.getLogger("nightingale.speech")

# Raised by sockets that were closed, and by the task that a hang-up cancels.
_GONE = (OSError, WebSocketDisconnect, asyncio.CancelledError)


@dataclass(frozen=True, slots=True)
class Account:
    """Who asked for an utterance, and by which way."""

    protocol: str  # http, websocket or wyoming
    request: str = ""
    key: Key = ANYBODY
    format: str = "pcm"

    def close(
        self, context: ServerContext, utterance: Utterance, ending: str, code: str | None = None
    ) -> None:
        """Count it and write its line, with the code of the error that ended it; of one that was
        not even begun, only the count."""
        if ending == "rejected":
            context.metrics.requests.labels(ending).inc()
            return
        n_characters = sum(map(len, utterance.job.text))
        context.metrics.note(utterance, ending)
        context.metrics.characters.inc(n_characters)
        outcome = utterance.outcome
        line = {
            "request": self.request,
            "protocol": self.protocol,
            "key": self.key.name,
            "ending": ending,
            "error": code,
            "format": self.format,
            "characters": n_characters,
            "seconds": round(utterance.n_received / SAMPLES_PER_SECOND, 3),
            "first_ms": utterance.first_ms,
            "work_s": None if outcome is None else round(outcome.work_s, 3),
            "resumed": utterance.n_resumed,
            "moved": len(utterance.moves),
            "unspoken": len(utterance.unspoken),  # how many: never which
        }
        log.info("spoken" if utterance.n_received else "not spoken", extra=line)

    @contextmanager
    def open(self, context: ServerContext, utterance: Utterance) -> Iterator[None]:
        """Closed when the utterance is over, however it ends."""
        ending, code = "failed", None
        try:
            yield
            ending = "gone" if utterance.outcome is None else utterance.outcome.ending
        except BaseException as error:
            # Starlette's WebSockets raise RuntimeError after the other side has closed.
            is_closed = self.protocol == "websocket" and isinstance(error, RuntimeError)
            ending = "gone" if is_closed else ending_of(error)
            if isinstance(error, NightingaleError | APIError):
                code = APIError.of(error).code
            raise
        finally:
            self.close(context, utterance, ending, code)


def ending_of(error: BaseException) -> str:
    """What an error means for the request that it ended."""
    if isinstance(error, _GONE):
        return "gone"
    if isinstance(error, BusyError):
        return "rejected"
    return "refused" if isinstance(error, RequestError | SpeechError | APIError) else "failed"
