"""What front and worker say to each other: a header in JSON and bytes behind it, in frames.

    | header bytes, u32 | payload bytes, u32 | header | payload |        little-endian

The front asks: speak, text, allow, cancel, voice, forget, ping. The worker answers: hello, audio,
words, checkpoint, end, error, need_voice, pong. To the process that clones it says: clone; that one
answers: hello, cloned, error. One connection to a worker carries many requests, each with its
id. It is a socket in a folder of this user alone, and never crosses machines: in a fleet, front and
worker are one replica, so there is no port to guard.
"""

from __future__ import annotations

import asyncio
import json
import struct
from typing import Any, BinaryIO

from nightingale.errors import WorkerError

Message = dict[str, Any]

PROTOCOL = 3  # grows with every change that the other side has to know of

MAX_HEADER = 4 * 2**20  # a text, several times over
MAX_PAYLOAD = 64 * 2**20  # a recording
_SIZES = struct.Struct("<II")


def pack(message: Message, payload: bytes = b"") -> bytes:
    """One frame."""
    header = json.dumps(message, separators=(",", ":")).encode()
    _check(len(header), len(payload))
    return _SIZES.pack(len(header), len(payload)) + header + payload


async def receive(reader: asyncio.StreamReader) -> tuple[Message, bytes] | None:
    """The next frame; None when the other side has left between two frames."""
    try:
        sizes = await reader.read(_SIZES.size)
        if not sizes:
            return None
        sizes += await reader.readexactly(_SIZES.size - len(sizes))
        n_header, n_payload = _SIZES.unpack(sizes)
        _check(n_header, n_payload)
        header = await reader.readexactly(n_header)
        payload = await reader.readexactly(n_payload)
    except (asyncio.IncompleteReadError, OSError) as error:
        raise WorkerError("the connection ended inside a frame, or was reset") from error
    return _parse(header), payload


def read(stream: BinaryIO) -> tuple[Message, bytes] | None:
    """Like `receive`, from a file that blocks."""
    sizes = stream.read(_SIZES.size)
    if not sizes:
        return None
    if len(sizes) == _SIZES.size:
        n_header, n_payload = _SIZES.unpack(sizes)
        _check(n_header, n_payload)
        header, payload = stream.read(n_header), stream.read(n_payload)
        if len(header) == n_header and len(payload) == n_payload:
            return _parse(header), payload
    raise WorkerError("the connection ended inside a frame, or was reset")


def _parse(header: bytes) -> Message:
    try:
        message = json.loads(header)
    except ValueError as error:
        raise WorkerError("a frame whose header is not JSON") from error
    if not isinstance(message, dict) or not isinstance(message.get("kind"), str):
        raise WorkerError("a frame whose header does not say what kind it is")
    return message


def _check(n_header: int, n_payload: int) -> None:
    if n_header > MAX_HEADER or n_payload > MAX_PAYLOAD:
        raise WorkerError(
            f"a frame of {n_header} and {n_payload} bytes, but at most {MAX_HEADER} and "
            f"{MAX_PAYLOAD} are allowed"
        )


async def connect(path: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """To a socket in the file system."""
    try:
        return await asyncio.open_unix_connection(path)
    except OSError as error:
        raise WorkerError(f"no worker answers at {path}") from error


async def listen(path: str, accept: Any) -> asyncio.Server:
    """At a socket in the file system."""
    return await asyncio.start_unix_server(accept, path)
