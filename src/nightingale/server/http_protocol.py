"""HTTP and WebSocket on the wire: limits that hold before any route or API key is looked at.

uvicorn parses both. Here are the bounds that it leaves to a proxy: size and time of a request's
head, time of its body, requests that are sent ahead, and the rate of WebSocket frames. Exceeding
one costs the client its connection, or only its speed; others do not notice.
"""

from __future__ import annotations

import asyncio
import json
import logging
from functools import partial
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from nightingale.server.api_errors import APIError
from nightingale.server.bucket import TokenBucket
from nightingale.server.connections import Connections

log = logging.getLogger("nightingale.access")

_MAX_PIPELINED = 16  # requests that wait for the answers to those before them
_MAX_WS_LINE = 8000  # bytes of a header of a WebSocket's request; its library takes 8192
_GRACE_S = 1.0  # the application answers a late body first
_FRAMES_PER_S, _MAX_BURST = 200.0, 1000.0
_PIECE = 2048  # bytes of WebSocket frames that are parsed before others may go on
_MAX_QUEUED = 32  # WebSocket messages that wait for the application


class _RefusedError(Exception):
    """Ends the parser's work; the answer is known already."""


class HttpProtocol(HttpToolsProtocol):
    """A connection with bounds on the head, the body's time and the requests under way."""

    def __init__(self, *, connections: Connections, **given: Any) -> None:
        super().__init__(**given)
        self._all, self._limits = connections, connections.limits
        self._is_in_head, self._is_upgraded = True, False
        self._n_head = self._n_lines = self._n_header_bytes = self._n_body = 0
        self._body_at = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._refusal: APIError | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        api_error = self._all.add(transport, lambda: not (self._is_responding or self._is_upgraded))
        if api_error is not None:
            self._refuse(api_error)
        else:
            self._watch(self._limits.head_s)

    def connection_lost(self, exc: Exception | None) -> None:
        self._unwatch()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """In pieces, so that no more of a head is parsed than may be."""
        if self._is_in_head and self._timer is None and not self._is_responding:
            self._watch(self._limits.head_s)
        rest = memoryview(data)
        while rest and not self.transport.is_closing() and not self._is_upgraded:
            room = self._limits.max_head - (self._n_head if self._is_in_head else 0)
            if room <= 0:
                self._refuse(self._too_large())
                return
            piece, rest = bytes(rest[:room]), rest[room:]
            self._n_head += len(piece)
            super().data_received(piece)

    def handle_websocket_upgrade(self) -> None:
        self._unwatch()
        self._is_upgraded = True
        if any(len(name) + len(value) > _MAX_WS_LINE for name, value in self.headers):
            self._refuse(
                APIError(431, "head_too_large", f"a header may have at most {_MAX_WS_LINE} bytes")
            )
            return
        super().handle_websocket_upgrade()

    def on_message_begin(self) -> None:
        self._n_lines = self._n_header_bytes = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._n_lines += 1
        self._count(len(name) + len(value) + 4)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._is_in_head, self._n_head, self._n_body = False, 0, 0
        self._body_at = self.loop.time()
        self._watch(self._limits.body_s + _GRACE_S)
        super().on_headers_complete()
        if len(self.pipeline) > _MAX_PIPELINED:
            raise self._refused(
                APIError(400, "pipelined", "too many requests at once; read replies")
            )

    def on_body(self, body: bytes) -> None:
        self._n_body += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._is_in_head, self._n_head = True, 0
        self._unwatch()
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002
        self._refuse(
            self._refusal
            or APIError(
                400, "invalid_http", "this is not a request of HTTP/1.1 as it must be written"
            )
        )

    @property
    def _is_responding(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _count(self, n_bytes: int) -> None:
        self._n_header_bytes += n_bytes
        is_long = self._n_header_bytes > self._limits.max_head
        if is_long or self._n_lines > self._limits.max_header_lines:
            raise self._refused(self._too_large())

    def _too_large(self) -> APIError:
        limits = self._limits
        return APIError(
            431,
            "head_too_large",
            f"the request line and headers may have at most {limits.max_head} bytes in "
            f"{limits.max_header_lines} lines",
        )

    def _refused(self, api_error: APIError) -> _RefusedError:
        self._refusal = api_error
        return _RefusedError()

    def _refuse(self, api_error: APIError) -> None:
        """Answer and close; in the middle of another answer, only close."""
        log.info("refused", extra={"status": api_error.status, "code": api_error.code})
        self._all.on_refused(api_error.status)
        self._unwatch()
        if not self._is_responding and not self.transport.is_closing():
            self.transport.write(_response(api_error))
        self.transport.close()

    def _watch(self, seconds: float) -> None:
        self._unwatch()
        self._timer = self.loop.call_later(seconds, self._expire)

    def _unwatch(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        """The head or the body is late."""
        self._timer = None
        limits = self._limits
        if not self._is_in_head:
            allowed_s = limits.body_s + _GRACE_S
            if self._is_responding:  # a body that is still wanted
                allowed_s += self._n_body / limits.min_body_rate
            left_s = self._body_at + allowed_s - self.loop.time()
            if left_s > 0:
                self._watch(left_s)
            else:
                self.transport.close()
        elif self._n_head and not self._is_responding:
            message = f"the request line and headers did not come within {limits.head_s:g} s"
            self._refuse(APIError(408, "timeout", message))
        elif not self._is_responding:
            self.transport.close()


class WebSocketProtocol(WebSocketsSansIOProtocol):
    """Frames at a bounded rate: a client that sends more is read more slowly.

    What was read is parsed in small pieces between which others are served: a read of 256 KiB may
    hold 40,000 frames.
    """

    def __init__(self, *args: Any, **given: Any) -> None:
        super().__init__(*args, **given)
        self._bucket = TokenBucket(_MAX_BURST, _FRAMES_PER_S)
        self._unread = bytearray()
        self._next: asyncio.TimerHandle | None = None
        self._n_frames = 0

    def data_received(self, data: bytes) -> None:
        self._unread += data
        if self._next is None:
            self._feed()

    def handle_events(self) -> None:
        self._n_frames = len(self.conn.events)
        super().handle_events()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._next is not None:
            self._next.cancel()
        self._unread.clear()
        super().connection_lost(exc)

    async def receive(self) -> Any:
        message = await super().receive()
        if self._unread or self._next is not None:
            self.transport.pause_reading()  # uvicorn may have resumed
            if self._next is None:
                self._next = self.loop.call_later(0, self._feed)
        return message

    def _feed(self) -> None:
        self._next, self._n_frames = None, 0
        if self.transport.is_closing():
            self._unread.clear()
            return
        size = _PIECE if self.handshake_initiated else len(self._unread)
        piece = bytes(self._unread[:size])
        del self._unread[:size]
        if piece:
            super().data_received(piece)
        if not self.handshake_initiated:  # not a WebSocket's request; uvicorn would wait for ever
            self.transport.write(b"".join(self.conn.data_to_send()))
            self.transport.close()
            return
        wait_s = self._bucket.force(self._n_frames)
        if wait_s or (self._unread and self.queue.qsize() < _MAX_QUEUED):
            self._next = self.loop.call_later(wait_s, self._feed)
        if self._next is not None or self._unread:
            self.transport.pause_reading()
        elif not self.read_paused:
            self.transport.resume_reading()


def http_protocol(connections: Connections) -> Any:
    """What uvicorn makes for each connection."""
    return partial(HttpProtocol, connections=connections)


def _response(api_error: APIError) -> bytes:
    body = json.dumps(api_error.body).encode()
    headers = {
        **api_error.headers,
        "content-type": "application/json",
        "content-length": str(len(body)),
        "connection": "close",
    }
    lines = [f"HTTP/1.1 {api_error.status} {HTTPStatus(api_error.status).phrase}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + body
