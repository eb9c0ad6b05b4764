"""A client of each protocol that the server speaks, and how its connection ended.

Small on purpose: each asks for one utterance, can stop reading, and says what it was sent last.
"""

from __future__ import annotations

import asyncio
import json
import socket
from abc import ABC, abstractmethod
from typing import Any

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidHandshake
from wyoming.error import Error
from wyoming.event import Event, async_read_event, async_write_event
from wyoming.tts import Synthesize, SynthesizeChunk, SynthesizeStart

from tests.server.running import Server

_SMALL = 4096  # bytes of a receive buffer
_RATE_HZ = 192_000  # buffers are full soon
_MAX_S = 120.0
_GOING_AWAY = 1001


class Client(ABC):
    """Connects, asks, hears the first audio, and hears how it ends."""

    def __init__(self, server: Server) -> None:
        self._server = server

    @abstractmethod
    async def connect(self, *, is_small: bool = False) -> None:
        """Small: with a receive buffer that is full soon."""

    @abstractmethod
    async def ask(self, text: str, *, is_open: bool = False) -> None:
        """For one utterance; open: more text may come, where the protocol knows that."""

    @abstractmethod
    async def first_audio(self) -> None: ...

    @abstractmethod
    async def ending(self) -> str:
        """end, error, closing or cut."""

    @abstractmethod
    async def close(self) -> None: ...

    def _socket(self, port: int, *, is_small: bool) -> socket.socket:
        connected = socket.socket()
        if is_small:
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _SMALL)
        connected.connect(("127.0.0.1", port))
        connected.setblocking(False)
        return connected

    @property
    def _port(self) -> int:
        return int(self._server.url.rpartition(":")[2])


class Http(Client):
    """`POST /v1/audio/speech`."""

    fields: dict[str, Any] = {}  # noqa: RUF012
    end_mark = b"\r\n0\r\n\r\n"

    async def connect(self, *, is_small: bool = False) -> None:
        self._reader, self._writer = await asyncio.open_connection(
            sock=self._socket(self._port, is_small=is_small), limit=_SMALL if is_small else 2**20
        )
        self._heard = b""

    async def ask(self, text: str, *, is_open: bool = False) -> None:  # noqa: ARG002
        body = json.dumps(self._server.body(text, sample_rate=_RATE_HZ, **self.fields)).encode()
        head = f"POST /v1/audio/speech HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}"
        self._writer.write(f"{head}\r\nContent-Type: application/json\r\n\r\n".encode() + body)

    async def first_audio(self) -> None:
        async with asyncio.timeout(_MAX_S):
            self._heard = await self._reader.readuntil(b"\r\n\r\n")
            self._heard += await self._reader.read(100)

    async def ending(self) -> str:
        try:
            async with asyncio.timeout(_MAX_S):
                while piece := await self._reader.read(2**16):
                    self._heard += piece
        except OSError:
            return "cut"
        is_200 = self._heard.startswith(b"HTTP/1.1 200")
        if self._heard and not is_200:
            return "error"
        return "end" if self._heard.endswith(self.end_mark) and is_200 else "cut"

    async def close(self) -> None:
        self._writer.close()


class Sse(Http):
    """The same as server-sent events."""

    fields = {"stream_format": "sse"}  # noqa: RUF012

    async def ending(self) -> str:
        end = await super().ending()
        has_mark = b"speech.audio.done" in self._heard
        return "cut" if end == "end" and not has_mark else end


class WebSocketClient(Client):
    """`/v1/audio/speech/stream`."""

    async def connect(self, *, is_small: bool = False) -> None:
        self._is_small = is_small
        self._connecting = asyncio.create_task(self._connect())
        self._connection: ClientConnection | None = None
        self._said: list[dict[str, Any]] = []
        await asyncio.wait([self._connecting], timeout=1.0)  # not while the model loads

    async def _connect(self) -> None:
        self._connection = await connect(
            f"ws://127.0.0.1:{self._port}/v1/audio/speech/stream",
            sock=self._socket(self._port, is_small=self._is_small),
            max_queue=1 if self._is_small else 1000,
            open_timeout=_MAX_S,
            close_timeout=1.0,
        )

    async def ask(self, text: str, *, is_open: bool = False) -> None:
        if self._connection is None:
            return
        start = {"type": "start", "sample_rate": _RATE_HZ, **self._server.options}
        for message in (start, {"type": "text", "text": text}):
            await self._connection.send(json.dumps(message))
        if not is_open:
            await self._connection.send(json.dumps({"type": "end"}))

    async def first_audio(self) -> None:
        assert self._connection is not None
        async with asyncio.timeout(_MAX_S):
            while not isinstance(await self._connection.recv(), bytes):
                pass

    async def ending(self) -> str:
        try:
            async with asyncio.timeout(_MAX_S):
                await self._connecting
                assert self._connection is not None
                while True:
                    message = await self._connection.recv()
                    if isinstance(message, str):
                        self._said.append(json.loads(message))
        except (ConnectionClosed, InvalidHandshake, OSError, EOFError):
            pass
        kinds = [said["type"] for said in self._said]
        is_going_away = self._connection is not None and self._connection.close_code == _GOING_AWAY
        if not is_going_away or "closing" not in kinds:
            return "cut"
        if "done" in kinds:
            return "end"
        return "error" if "error" in kinds else "closing"

    async def close(self) -> None:
        self._connecting.cancel()
        if self._connection is not None:
            self._connection.transport.abort()


class WyomingClient(Client):
    """As Home Assistant speaks."""

    async def connect(self, *, is_small: bool = False) -> None:
        self._reader, self._writer = await asyncio.open_connection(
            sock=self._socket(self._server.wyoming_port, is_small=is_small),
            limit=_SMALL if is_small else 2**20,
        )
        self._heard: list[str] = []

    async def ask(self, text: str, *, is_open: bool = False) -> None:
        if not is_open:
            await self._write(Synthesize(text).event())
            return
        for event in (SynthesizeStart().event(), SynthesizeChunk(text).event()):
            await self._write(event)

    async def _write(self, event: Event) -> None:
        await async_write_event(event, self._writer)

    async def first_audio(self) -> None:
        async with asyncio.timeout(_MAX_S):
            while (event := await async_read_event(self._reader)) is not None:
                if event.type == "audio-chunk":
                    return

    async def ending(self) -> str:
        try:
            async with asyncio.timeout(_MAX_S):
                while (event := await async_read_event(self._reader)) is not None:
                    self._heard.append(event.type)
        except (OSError, asyncio.IncompleteReadError):
            pass
        if any(Error.is_type(kind) for kind in self._heard):
            return "error"
        return "end" if "audio-stop" in self._heard else "cut"

    async def close(self) -> None:
        self._writer.close()


CLIENTS: dict[str, type[Client]] = {
    "http": Http,
    "sse": Sse,
    "websocket": WebSocketClient,
    "wyoming": WyomingClient,
}
