"""Sockets that listen before the model is there."""

from __future__ import annotations

import asyncio
import socket

import pytest

from nightingale.errors import AddressError
from nightingale.server.listeners import close, listen, port_of, url


def test_a_free_port_is_taken_and_then_in_use() -> None:
    sockets = listen("127.0.0.1", 0)
    try:
        port = port_of(sockets)
        assert port > 0
        with pytest.raises(AddressError, match=f"port {port} on 127.0.0.1 is in use.*--wyoming"):
            listen("127.0.0.1", port, "--wyoming-port")
    finally:
        close(sockets)
    close(listen("127.0.0.1", port))


def test_all_addresses_of_a_name_have_the_same_port() -> None:
    sockets = listen("localhost", 0)
    try:
        assert len({listener.getsockname()[1] for listener in sockets}) == 1
    finally:
        close(sockets)


def test_small_writes_are_sent_at_once() -> None:
    """TCP_NODELAY, which asyncio sets for sockets that are made as TCP ones alone."""

    async def main() -> int:
        sockets, accepted = listen("127.0.0.1", 0), asyncio.Queue[int]()

        async def accept(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            taken = writer.get_extra_info("socket")
            await accepted.put(taken.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        async with await asyncio.start_server(accept, sock=sockets[0]):
            _, writer = await asyncio.open_connection("127.0.0.1", port_of(sockets))
            writer.close()
            return await accepted.get()

    assert asyncio.run(main()) != 0


@pytest.mark.parametrize("host", ["192.0.2.1", "no such host", "256.1.1.1"])
def test_a_host_that_is_not_here_is_said(host: str) -> None:
    with pytest.raises(AddressError, match=host):
        listen(host, 0)


def test_urls_are_what_a_browser_here_can_open() -> None:
    assert url("127.0.0.1", 8004) == "http://127.0.0.1:8004"
    assert url("::1", 80) == "http://[::1]:80"
    assert url("0.0.0.0", 8004) == url("::", 8004) == "http://localhost:8004"
