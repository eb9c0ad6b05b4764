"""What one Wyoming connection may take: real sockets, the real reader, no model."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from wyoming.event import async_read_event

from nightingale.server import wyoming
from nightingale.server.connections import ConnectionLimits
from nightingale.server.context import ServerContext
from tests.server.test_middleware import make_gate

Open = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


def line(kind: str, **data: Any) -> bytes:
    return json.dumps({"type": kind, "data": data}).encode() + b"\n"


def converse(
    folder: Path, talk: Callable[[ServerContext, Open], Awaitable[None]], **config: Any
) -> None:
    """With a server that listens, but is too busy to speak: its dispatcher drains."""

    async def main() -> None:
        context = make_gate(folder, **config)._context
        context.dispatcher.drain()
        listener = socket.create_server(("127.0.0.1", 0))
        listener.setblocking(False)
        port = listener.getsockname()[1]
        server = await wyoming.listen(context, listener)
        try:
            await talk(context, lambda: asyncio.open_connection("127.0.0.1", port))
        finally:
            server.close()
            if others := asyncio.all_tasks() - {asyncio.current_task()}:
                assert not (await asyncio.wait(others, timeout=20))[1], "a task outlives its client"

    asyncio.run(main())


async def kinds(reader: asyncio.StreamReader, within_s: float = 20) -> list[tuple[str, str]]:
    """Type and code of all events until the connection ends."""
    found = []
    async with asyncio.timeout(within_s):
        while (event := await async_read_event(reader)) is not None:
            found.append((event.type, str(event.data.get("code", ""))))
    return found


@pytest.mark.slow
def test_text_in_pieces_that_stops_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It held its place for as long as the connection lived: for ever, if that was half open."""
    monkeypatch.setattr(wyoming, "_TEXT_IDLE_S", 0.3)
    monkeypatch.setattr(wyoming, "_IDLE_S", 1.0)

    async def talk(context: ServerContext, connect: Open) -> None:
        reader, writer = await connect()
        writer.write(line("synthesize-start"))
        begun = time.monotonic()
        assert (await kinds(reader))[-1] == ("error", "timeout")
        reader, idle = await connect()
        idle.write(line("ping"))
        assert await kinds(reader) == [("pong", ""), ("error", "timeout")]
        reader, partial = await connect()
        partial.write(b'{"type": ')  # and never the rest
        assert await kinds(reader) == [("error", "timeout")]
        assert time.monotonic() - begun < 15
        for open_ in (writer, idle, partial):
            open_.close()
        while len(context.connections):
            context.connections.sweep()
            await asyncio.sleep(0.05)

    converse(tmp_path, talk)


def test_tcp_keepalive_is_on() -> None:
    with socket.socket() as connection:
        wyoming._keep_alive(connection)
        assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        if hasattr(socket, "TCP_KEEPIDLE"):
            idle = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE)
            gap = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL)
            n_most = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT)
            assert idle + gap * n_most == 60


def test_a_connection_more_than_allowed_is_told_and_closed(tmp_path: Path) -> None:
    async def talk(context: ServerContext, connect: Open) -> None:
        kept = [await connect(), await connect()]
        for reader, writer in kept:
            writer.write(line("synthesize-start"))  # not idle
            assert await async_read_event(reader) is not None
        reader, writer = await connect()
        assert await kinds(reader) == [("error", "too_many_connections")]
        for _, open_ in [*kept, (reader, writer)]:
            open_.close()

    converse(tmp_path, talk, connections=ConnectionLimits(max_per_address=2))


@pytest.mark.parametrize(
    "sent",
    [line("synthesize"), line("synthesize", text=7), line("synthesize", text=None),
     line("synthesize", text="Hi.", voice={"name": 7}),
     line("synthesize", text="Hi.", voice={"language": "x" * 99}), line("synthesize-chunk"),
     line("synthesize-start") + line("synthesize-chunk", text=7),
     line("synthesize-start") + line("synthesize-chunk", text="x" * 21_000),
     line("synthesize-start") * 9, line("synthesize", text="Hi.") * 9, line("x"), b'{"type": 7}\n'],
)  # fmt: skip
def test_an_event_that_cannot_be_used_does_not_end_the_connection(
    tmp_path: Path, sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def talk(context: ServerContext, connect: Open) -> None:
        reader, writer = await connect()
        writer.write(sent + line("ping"))
        while (event := await asyncio.wait_for(async_read_event(reader), 20)) is not None:
            if event.type == "pong":
                break
        assert event is not None
        writer.close()

    converse(tmp_path, talk)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


@pytest.mark.parametrize(
    "sent",
    [b"[" * 200_000 + b"\n", b'"x"\n', b"[]\n", b"7\n", b"\xff\xfe\n", b"x" * 400_000,
     b'{"type": "ping", "data_length": 99999999}\n', b'{"type": "ping", "data_length": "x"}\n',
     b'{"type": "ping", "payload_length": 1e999}\n', b'{"type": "ping", "data": 7, '
     b'"data_length": 2}\n{}', b'{"type": "ping", "data_length": 1.5}\n{}'],
)  # fmt: skip
def test_what_is_not_wyoming_is_closed_without_a_word_in_the_log(
    tmp_path: Path, sent: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def talk(context: ServerContext, connect: Open) -> None:
        reader, writer = await connect()
        writer.write(sent)
        with suppress(ConnectionResetError):
            assert await kinds(reader) == []
        writer.close()

    converse(tmp_path, talk)
    assert not [record for record in caplog.records if record.levelname == "ERROR"]


@pytest.mark.slow
def test_a_flood_of_events_is_read_slowly_and_the_loop_goes_on(tmp_path: Path) -> None:
    async def talk(context: ServerContext, connect: Open) -> None:
        reader, writer = await connect()
        writer.write(line("ping") * 20_000)
        longest, n_pongs, begun = 0.0, 0, time.monotonic()
        while (at := time.monotonic()) - begun < 2:
            with suppress(TimeoutError):
                async with asyncio.timeout(0.01):
                    n_pongs += (await reader.readline()).count(b"pong")
            longest = max(longest, time.monotonic() - at)
        writer.transport.abort()
        assert 1000 <= n_pongs < 1000 + 200 * 2 + 200
        assert longest < 0.5

    converse(tmp_path, talk)
