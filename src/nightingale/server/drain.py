"""Graceful shutdown: requests under way may end within a limit, and every client is informed.

HTTP clients see the end of the response, or a body that is cut without its end mark. Connections
that outlive a request (WebSocket, Wyoming) are sessions here: they are informed at the beginning,
closed when they have nothing under way, and at the limit in any case.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Iterable
from contextlib import suppress
from typing import Protocol

log = logging.getLogger("nightingale.drain")

_LOOK_S = 0.02
_INFORM_S = 0.3  # for the last messages, at the limit


class Session(Protocol):
    """A connection that outlives its requests."""

    async def announce_shutdown(self, drain_s: float) -> None:
        """Take no new requests; close when those under way have ended."""

    async def shut_down(self) -> None:
        """Close now."""


class Drainable(Protocol):
    """What is shut down."""

    @property
    def sessions(self) -> set[Session]: ...

    @property
    def n_open(self) -> int:
        """Requests under way."""

    def abort(self) -> None:
        """End them with an error."""


async def drain(server: Drainable, drain_s: float) -> None:
    """Returns when all has ended, or at the limit."""
    until = time.monotonic() + drain_s
    log.info("draining", extra={"requests": server.n_open, "connections": len(server.sessions)})
    announcing = asyncio.ensure_future(
        _all(session.announce_shutdown(drain_s) for session in set(server.sessions))
    )
    while server.n_open and time.monotonic() < until:
        await asyncio.sleep(_LOOK_S)
    if server.n_open:
        log.warning("drain limit reached: requests aborted", extra={"requests": server.n_open})
        server.abort()
    await _wait_until_idle(server, time.monotonic() + _INFORM_S)
    announcing.cancel()
    with suppress(TimeoutError):
        async with asyncio.timeout(_INFORM_S):
            await _all(session.shut_down() for session in set(server.sessions))


async def _wait_until_idle(server: Drainable, until: float) -> None:
    while (server.n_open or server.sessions) and time.monotonic() < until:
        await asyncio.sleep(_LOOK_S)


async def _all(work: Iterable[Awaitable[None]]) -> None:
    """A connection that fails or does not respond stops no other one."""
    await asyncio.gather(*work, return_exceptions=True)
