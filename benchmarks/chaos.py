"""A bad network in front of a server: delays, stalls, drips, cuts and resets, by a seed.

What goes wrong with a connection is decided when it is opened, by its number and the seed alone.
"""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

Kind = Literal["none", "delay", "stall", "drip", "cut", "reset", "mute"]
KINDS: tuple[Kind, ...] = ("none", "none", "delay", "stall", "drip", "cut", "reset", "mute")


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens to one connection, in the direction of the client."""

    kind: Kind
    at: int  # bytes after which it happens
    seconds: float


class Chaos:
    """A proxy; `async with Chaos(port) as chaos`, then ask `chaos.port`."""

    def __init__(self, target: int, seed: int = 0) -> None:
        self._target, self._rng = target, random.Random(seed)
        self.port = 0
        self.counts: Counter[str] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Chaos:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _draw(self) -> Fault:
        rng = self._rng
        kind = rng.choice(KINDS)
        self.counts[kind] += 1
        return Fault(kind, int(10 ** rng.uniform(0, 5)), rng.uniform(0.005, 0.3))

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        fault = self._draw()
        try:
            up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.close()
            return
        up = asyncio.create_task(_copy(reader, up_writer))
        try:
            await _spoil(up_reader, writer, fault)
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            up.cancel()
            with suppress(asyncio.CancelledError, OSError):
                await up
            for side in (writer, up_writer):
                side.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()


async def _spoil(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, fault: Fault) -> None:
    n_bytes, kind = 0, fault.kind
    while data := await reader.read(65536):
        left = fault.at - n_bytes
        n_bytes += len(data)
        if kind in ("cut", "reset", "mute") and n_bytes >= fault.at:
            writer.write(data[: max(0, left)])
            await writer.drain()
            if kind == "mute":  # says nothing more, and does not hang up for a while
                await asyncio.sleep(2 * fault.seconds)
            if kind == "reset":
                _reset(writer)
            return
        if kind == "stall" and n_bytes >= fault.at:
            await asyncio.sleep(4 * fault.seconds)
            kind = "none"
        if kind == "delay":
            await asyncio.sleep(fault.seconds / 3)
        if kind == "drip":
            step = max(64, len(data) // 40)
            for at in range(0, len(data), step):
                writer.write(data[at : at + step])
                await writer.drain()
                await asyncio.sleep(0.001)
        else:
            writer.write(data)
            await writer.drain()


def _reset(writer: asyncio.StreamWriter) -> None:
    """RST instead of FIN."""
    connection: socket.socket = writer.get_extra_info("socket")
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
