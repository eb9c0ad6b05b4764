"""uvicorn with this package's protocols on a real socket, and clients that write raw bytes."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import uvicorn

from nightingale.server.connections import ConnectionLimits, Connections
from nightingale.server.http_protocol import WebSocketProtocol, http_protocol


class Edge:
    """Where it listens, and its counts."""

    def __init__(self, port: int, connections: Connections) -> None:
        self.port, self.connections = port, connections

    def connect(self) -> socket.socket:
        client = socket.create_connection(("127.0.0.1", self.port))
        client.settimeout(20)
        return client

    def exchange(self, *pieces: bytes) -> bytes:
        """All that is answered until the server closes or, after an answer, is quiet."""
        with self.connect() as client:
            try:
                for piece in pieces:
                    client.sendall(piece)
            except OSError:
                pass  # it was closed while we sent
            return read_all(client)


def read_all(client: socket.socket, quiet_s: float = 0.5) -> bytes:
    answer = b""
    try:
        while data := client.recv(2**16):
            answer += data
            client.settimeout(quiet_s)
    except (TimeoutError, ConnectionError):
        pass
    return answer


def is_closed_after(client: socket.socket, within_s: float) -> float | None:
    """Seconds until the server closed it; None if it did not."""
    begun = time.monotonic()
    client.settimeout(within_s)
    try:
        while client.recv(2**16):
            pass
    except TimeoutError:
        return None
    except ConnectionError:
        pass
    return time.monotonic() - begun


@contextmanager
def edge(
    app: Any, limits: ConnectionLimits | None = None, stall_s: float = 60.0, **more: Any
) -> Iterator[Edge]:
    """In a thread, until the block ends."""
    connections = Connections(limits or ConnectionLimits(), stall_s, **more)
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        app,
        http=http_protocol(connections),
        ws=WebSocketProtocol,
        log_config=None,
        lifespan="off",
        timeout_keep_alive=connections.limits.keep_alive_s,
        timeout_graceful_shutdown=1,
        ws_per_message_deflate=False,
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([listener])))
    thread.start()
    try:
        yield Edge(listener.getsockname()[1], connections)
    finally:
        server.should_exit = True
        thread.join(20)
        listener.close()
