"""Frames: whole, or refused by name."""

from __future__ import annotations

import asyncio
import socket
import struct
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nightingale.errors import WorkerError
from nightingale.server import worker_protocol


async def read(
    data: bytes, cuts: list[int] | None = None
) -> list[tuple[worker_protocol.Message, bytes]]:
    reader = asyncio.StreamReader()
    for cut in cuts or []:
        reader.feed_data(data[:cut])
        data = data[cut:]
        await asyncio.sleep(0)
    reader.feed_data(data)
    reader.feed_eof()
    frames = []
    while (frame := await worker_protocol.receive(reader)) is not None:
        frames.append(frame)
    return frames


@given(
    st.lists(st.tuples(st.dictionaries(st.text(), st.integers()), st.binary())),
    st.lists(st.integers(0, 50)),
)
def test_what_is_packed_comes_out(
    said: list[tuple[dict[str, int], bytes]], cuts: list[int]
) -> None:
    frames = [({**message, "kind": "audio"}, payload) for message, payload in said]
    data = b"".join(worker_protocol.pack(message, payload) for message, payload in frames)
    assert asyncio.run(read(data, cuts)) == frames


@pytest.mark.parametrize(
    "data",
    [
        worker_protocol.pack({"kind": "audio"}, b"12345678")[:-1],
        b"\x01",
        struct.pack("<II", worker_protocol.MAX_HEADER + 1, 0),
        struct.pack("<II", 2, worker_protocol.MAX_PAYLOAD + 1),
        struct.pack("<II", 2, 0) + b"{]",
        struct.pack("<II", 2, 0) + b"[]",
        struct.pack("<II", 2, 0) + b"{}",
        struct.pack("<II", 10, 0) + b'{"kind":1}',
        struct.pack("<II", 2, 0) + b"\xff\xfe",
    ],
)
def test_what_is_no_frame_is_refused(data: bytes) -> None:
    with pytest.raises(WorkerError):
        asyncio.run(read(data))


def test_what_is_too_large_is_not_sent() -> None:
    with pytest.raises(WorkerError, match="at most"):
        worker_protocol.pack({"kind": "clone"}, bytes(worker_protocol.MAX_PAYLOAD + 1))


def test_nobody_there_is_said_so() -> None:
    with pytest.raises(WorkerError, match="no worker answers"):
        asyncio.run(worker_protocol.connect("/nowhere/at/all.sock"))


def test_another_machine_is_never_connected_to(tmp_path: Path) -> None:
    """The protocol has no secret of its own, so it must have no port either."""

    async def check() -> None:
        n_came = 0

        def come(*_: object) -> None:
            nonlocal n_came
            n_came += 1

        server = await asyncio.start_server(come, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        async with server:
            with pytest.raises(WorkerError, match="no worker answers"):
                await worker_protocol.connect(f"{host}:{port}")
            listening = await worker_protocol.listen(f"{tmp_path}/{host}:0", come)
            families = {one.family for one in listening.sockets}
            listening.close()
        assert n_came == 0 and families == {socket.AF_UNIX}

    asyncio.run(check())
