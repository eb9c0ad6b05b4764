"""A client that no lost server disturbs: a response that broke off is continued, from its byte on.

    python examples/resume.py http://localhost:8004 "A long text." > speech.pcm   # needs httpx

Every failure has a name. A response is whole only if it came to its end mark: what merely stops is
a StreamLostError, never a short text.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import httpx

MAX_TRIES = 8


@dataclass(eq=False)
class FailedError(Exception):
    """The server's error, by its code; `retry_after_s` is None if trying again is of no use."""

    code: str
    status: int = 0
    retry_after_s: float | None = None

    def __str__(self) -> str:
        return f"{self.status} {self.code}" if self.status else self.code


@dataclass(eq=False)
class ConnectionLostError(FailedError):
    """The connection ended, or there was none, before any answer."""

    code: str = "connection_lost"
    retry_after_s: float | None = 0.1


@dataclass(eq=False)
class StreamLostError(FailedError):
    """The body ended without its end mark, behind `n_bytes` of this response."""

    code: str = "stream_lost"
    retry_after_s: float | None = 0.1
    n_bytes: int = 0


@dataclass(slots=True)
class Speech:
    """What has been received so far of one response, from one server or several."""

    body: dict[str, Any]
    data: bytes = b""
    fingerprint: str = ""  # of the server: only an equal one gives the same bytes
    is_resumed: bool = False  # by another request, from a byte on
    is_moved: bool = False  # to a worker of another kind: the same words, not the same bits

    async def attempt(self, client: httpx.AsyncClient, url: str) -> AsyncIterator[httpx.Response]:
        """Adds what one server gives, and yields its response after every piece."""
        n_before = len(self.data)
        known = {"x-resume-from": str(n_before), "x-fingerprint": self.fingerprint}
        headers = known if n_before else {}
        has_begun = False
        try:
            async with client.stream("POST", url, json=self.body, headers=headers) as reply:
                has_begun = reply.status_code == 200
                if not has_begun:
                    raise failure_of(reply, await reply.aread())
                if not {"transfer-encoding", "content-length"} & set(reply.headers):
                    raise StreamLostError  # HTTP/1.0: nobody could say whether it is whole
                self.fingerprint = reply.headers.get("x-fingerprint", "")
                self.is_resumed |= n_before > 0
                self.is_moved |= "x-moved" in reply.headers
                async for piece in reply.aiter_raw():
                    self.data += piece
                    yield reply
        except httpx.TransportError as error:
            if has_begun:
                raise StreamLostError(n_bytes=len(self.data) - n_before) from error
            raise ConnectionLostError from error


def failure_of(reply: httpx.Response, data: bytes) -> FailedError:
    """The error that an answer names."""
    try:
        code = str(json.loads(data)["error"]["code"])
    except (ValueError, KeyError, TypeError):
        code = "unnamed"
    is_temporary = "true" if reply.status_code >= 500 else "false"
    if reply.headers.get("x-should-retry", is_temporary) != "true":
        return FailedError(code, reply.status_code)
    after_ms = float(reply.headers.get("retry-after-ms", 500))
    return FailedError(code, reply.status_code, after_ms / 1e3)


async def speak(
    client: httpx.AsyncClient, url: str, body: dict[str, Any], *, max_tries: int = MAX_TRIES,
    on_failure: Callable[[FailedError], None] | None = None,
    on_piece: Callable[[httpx.Response], None] | None = None,
) -> Speech:  # fmt: skip
    """The whole response, however many servers are lost meanwhile; `body` must have a seed."""
    speech = Speech(body)
    for number in range(max_tries):
        try:
            async for reply in speech.attempt(client, url):
                if on_piece:
                    on_piece(reply)
            return speech
        except FailedError as failure:
            if on_failure:
                on_failure(failure)
            if failure.status == 410:  # other servers than before: they give other bytes
                speech = Speech(body)
            elif failure.retry_after_s is None or number == max_tries - 1:
                raise
            after_s = min(3.0, failure.retry_after_s or 0.1)
            await asyncio.sleep(after_s * random.uniform(0.7, 1.3))
    raise FailedError("too_many_tries")


async def main(server: str, text: str) -> None:
    body = {"input": text, "response_format": "pcm", "seed": 1}
    async with httpx.AsyncClient(timeout=120) as client:
        url = f"{server}/v1/audio/speech"
        speech = await speak(client, url, body, on_failure=lambda it: print(it, file=sys.stderr))
    sys.stdout.buffer.write(speech.data)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: python examples/resume.py http://HOST:PORT TEXT > speech.pcm")
    try:
        asyncio.run(main(*sys.argv[1:]))
    except FailedError as failure:
        sys.exit(f"not spoken: {failure}")
