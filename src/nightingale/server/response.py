"""A request becomes an answer: bytes leave as soon as there is sound, and stop when nobody listens.

Until the first samples are there, a failure is a status. After that it is signalled by ending the
body without its end mark, so a cut answer is never taken for a whole one.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import logging
import time
from collections.abc import AsyncGenerator, MutableMapping
from contextlib import aclosing, closing, suppress
from typing import Any
from urllib.parse import quote

import numpy as np
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from nightingale.audio.encode import Encoder, patched
from nightingale.core import SAMPLES_PER_SECOND, Word
from nightingale.server.accounting import Account, ending_of
from nightingale.server.api_errors import APIError
from nightingale.server.context import ServerContext, SpeechRequest, coded
from nightingale.server.fingerprint import digest
from nightingale.server.keys import owner_of
from nightingale.server.utterance import Move, Samples, Utterance

log = logging.getLogger("nightingale.reply")


class StreamingSpeechResponse(Response):
    """The answer to one request for speech."""

    def __init__(self, context: ServerContext, request: SpeechRequest, n_skip: int = 0) -> None:
        """Without the first `n_skip` bytes, which the client has."""
        super().__init__()
        self._context, self._request = context, request
        self._n_skip, self._n_made = n_skip, 0
        self._utterance: Utterance | None = None
        self._n_bytes, self._sum = 0, hashlib.sha256()
        self._ending = "failed"
        self._code: str | None = None  # of what went wrong
        self._has_begun = False
        self._owner = ""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._owner = owner_of(self._request.key, (scope.get("client") or ("", 0))[0])
        speaking = asyncio.create_task(self._speak(send))
        leaving = asyncio.create_task(_gone(receive))
        try:
            await asyncio.wait({speaking, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not speaking.done():
                self._ending = "gone"
                speaking.cancel()
            await speaking
        except asyncio.CancelledError:
            if self._ending != "gone":
                raise
        except Exception as error:
            api_error = self._judge(error)
            scope["state"]["code"] = self._code = api_error.code  # for the log
            if not self._has_begun:
                await api_error.response(scope, receive, send)
        finally:
            leaving.cancel()
            with suppress(asyncio.CancelledError):
                await leaving
            self._note()

    def _judge(self, error: Exception) -> APIError:
        self._ending = ending_of(error)
        if self._ending == "gone":
            return APIError(499, "gone", "nobody listens")
        return APIError.of(error)

    async def _speak(self, send: Send) -> None:
        context, request = self._context, self._request
        with request.key.quota(request.n_characters):
            async with context.dispatcher.speak(request.job, self._owner) as utterance:
                self._utterance = utterance
                if request.is_streamed:
                    await self._stream(utterance, send)
                else:
                    await self._send_whole(utterance, send)
        assert utterance.outcome is not None
        self._ending = utterance.outcome.ending

    async def _stream(self, utterance: Utterance, send: Send) -> None:
        async with aclosing(self._pieces(utterance)) as pieces:
            async for piece in pieces:
                rest = self._unsent(piece)
                if not rest:
                    continue
                if not self._has_begun:
                    await self._begin(send, {})
                await self._send(send, rest, more_body=True)
        self._check_range()
        if not self._has_begun:
            await self._begin(send, {})
        await self._send(send, b"", more_body=False)

    def _unsent(self, piece: bytes) -> bytes:
        """What of the next piece the client does not have."""
        rest = piece[max(0, self._n_skip - self._n_made) :]
        self._n_made += len(piece)
        return rest

    def _check_range(self) -> None:
        if self._n_made < self._n_skip:
            message = f"from is {self._n_skip}, but this audio has {self._n_made} bytes"
            raise APIError(416, "out_of_range", message, param="from")

    async def _send_whole(self, utterance: Utterance, send: Send) -> None:
        with closing(Encoder(self._request.format, self._request.rate_hz)) as encoder:
            body, samples = [encoder.start()], list[Samples]()
            async for event in utterance:
                if isinstance(event, np.ndarray):
                    body.append(await coded(encoder, event))
                    samples.append(event)
            body.append(encoder.finish())
            whole = patched(b"".join(body), encoder.patches())
        if samples:
            utterance.clock.note(np.concatenate(samples), time.monotonic())
        rest = self._unsent(whole)
        self._check_range()
        await self._begin(send, {"content-length": str(len(rest))})
        await self._send(send, rest, more_body=False)

    async def _begin(self, send: Send, extra: dict[str, str]) -> None:
        """The head; if the connection breaks from now on, the response can be continued."""
        context = self._context
        context.recent.keep(self._request, context.dispatcher.hello.get("fingerprint"))
        headers = [(n.encode(), v.encode("latin-1")) for n, v in (self._head() | extra).items()]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        self._has_begun = True

    async def _send(self, send: Send, body: bytes, *, more_body: bool) -> None:
        self._n_bytes += len(body)
        self._sum.update(body)
        message: MutableMapping[str, Any] = {"type": "http.response.body", "body": body}
        async with asyncio.timeout(self._context.config.stall_s):  # its place is wanted by others
            await send({**message, "more_body": more_body})

    async def _pieces(self, utterance: Utterance) -> AsyncGenerator[bytes]:
        request = self._request
        with closing(Encoder(request.format, request.rate_hz)) as encoder:
            head = encoder.start()
            max_wait_s = self._context.config.max_prebuffer_s if request.is_prebuffered else 0.0
            async for event in utterance.paced(max_wait_s):
                if isinstance(event, np.ndarray):
                    head += await coded(encoder, event)
                    if head:
                        yield self._framed(head)
                    head = b""
                elif isinstance(event, Move):
                    if request.is_sse:
                        yield _event(type="speech.audio.moved", **event.fields)
                elif request.is_sse and request.has_words:
                    yield _event(type="speech.audio.words", words=_words(event))
            if rest := head + encoder.finish():
                yield self._framed(rest)
        if request.is_sse:
            assert utterance.outcome is not None
            n_in, n_out = request.n_characters, utterance.outcome.n_tokens
            usage = {"input_tokens": n_in, "output_tokens": n_out, "total_tokens": n_in + n_out}
            ending = utterance.outcome.ending
            yield _event(
                type="speech.audio.done",
                usage=usage,
                finish_reason=ending,
                unspoken=utterance.unspoken,
                **utterance.detected,
            )

    def _framed(self, data: bytes) -> bytes:
        if not self._request.is_sse:
            return data
        return _event(type="speech.audio.delta", audio=base64.b64encode(data).decode())

    def _head(self) -> dict[str, str]:
        request, utterance = self._request, self._utterance
        assert utterance is not None
        headers = {
            "content-type": request.content_type,
            "cache-control": "no-store",
            "x-accel-buffering": "no",
            "x-sample-rate": str(request.rate_hz),
            "x-seed": str(request.job.options.get("seed", 0)),
            "server-timing": utterance.timing,
        }
        hello = self._context.dispatcher.hello
        headers["x-fingerprint"] = digest(hello.get("fingerprint", {}))
        if "resolved_plan" in hello:
            headers["x-plan"] = f"{hello['resolved_plan']}; device={hello['device']}"
        if utterance.prebuffer.prior is not None:
            headers["x-real-time-factor"] = f"{utterance.prebuffer.prior:.3f}"
        if hello.get("is_watermarked"):
            headers["x-watermark"] = "perth"
        if utterance.language is not None:
            headers["x-language"] = str(utterance.language)
        if utterance.unspoken:
            unspoken = (c if len(c) == 1 else f" {c}" for c in utterance.unspoken)
            headers["x-unspoken"] = quote("".join(unspoken).strip(), safe="")
        if utterance.moves:
            names = sorted({name for move in utterance.moves for name in move.differing})
            headers["x-moved"] = ", ".join(names)
        return headers

    def _note(self) -> None:
        """One line, one receipt, and the counters; no text."""
        context, request, utterance = self._context, self._request, self._utterance
        if utterance is None or self._ending == "rejected":
            context.metrics.requests.labels(self._ending).inc()
            return
        Account("http", request.request_id, request.key, request.format).close(
            context, utterance, self._ending, self._code
        )
        receipt = {
            "id": request.request_id,
            "finish_reason": self._ending,
            "error": self._code,
            "samples": utterance.n_received,
            "seconds": round(utterance.n_received / SAMPLES_PER_SECOND, 3),
            "bytes": self._n_bytes,
            "sha256": self._sum.hexdigest(),
            "resumed": utterance.n_resumed,
            **utterance.report,
            **utterance.detected,
            "unspoken": utterance.unspoken,
        }
        context.recent.keep_receipt(request.key.name, request.request_id, receipt)


def _words(words: list[Word]) -> list[dict[str, Any]]:
    return [{"word": word.text, "start": word.start_s, "end": word.end_s} for word in words]


def _event(**fields: Any) -> bytes:
    return b"data: " + json.dumps(fields).encode() + b"\n\n"


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
