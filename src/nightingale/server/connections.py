"""Open connections of all protocols: how many there may be, and which have stopped reading."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from nightingale.server.api_errors import APIError
from nightingale.server.listeners import is_loopback

log = logging.getLogger("nightingale.access")  # whose lines are limited to a few a second

MAX_PER_ADDRESS = 64  # connections, unless something else is asked for
_MAX_UNSENT = 256 * 2**20  # bytes that wait for all clients together
_SWEEP_S = 1.0


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """What a client may take before it has shown an API key."""

    max_connections: int = 512
    max_per_address: int | None = None  # None: 64, and no such limit for loopback (a proxy's)
    max_head: int = 32 * 2**10  # bytes of request line and headers
    max_header_lines: int = 100
    head_s: float = 10.0
    body_s: float = 20.0  # and one more second for each `min_body_rate` bytes that came
    min_body_rate: int = 64 * 2**10  # bytes a second
    keep_alive_s: int = 15  # between two requests


@dataclass(slots=True, eq=False)
class _Open:
    address: str
    is_idle: Callable[[], bool]
    progress_at: float
    n_unsent: int = 0


class Connections:
    """Counts connections per client address, and aborts those that take nothing.

    Where there is no room for another one, the oldest idle connection is closed for it: of the same
    address, or of the address that has most. Only if none is idle, the new one is refused.
    An entry leaves when its transport is closed and flushed, so that no path of any protocol can
    forget to remove one. A transport that is closed while its client does not read would never be
    flushed: it is aborted like any other that makes no progress for `stall_s`.
    """

    def __init__(
        self,
        limits: ConnectionLimits,
        stall_s: float,
        clock: Callable[[], float] = time.monotonic,
        max_unsent: int = _MAX_UNSENT,
    ) -> None:
        self.limits, self._stall_s, self._clock = limits, stall_s, clock
        self._max_unsent = max_unsent
        self._open: dict[asyncio.WriteTransport, _Open] = {}
        self._timer: asyncio.TimerHandle | None = None
        self.on_refused: Callable[[int], None] = lambda _status: None  # counts, by status

    def __len__(self) -> int:
        return len(self._open)

    def add(
        self, transport: asyncio.WriteTransport, is_idle: Callable[[], bool] = lambda: False
    ) -> APIError | None:
        """Count it; or say why there may not be another one."""
        address = client_address(transport)
        if self._fault(address) is not None:
            self.sweep()  # some may be gone
        while (api_error := self._fault(address)) is not None:
            if not self._evict(address if api_error.status == 429 else None):
                return api_error
        self._open[transport] = _Open(address, is_idle, self._clock())
        self._arm()
        return None

    def _evict(self, address: str | None) -> bool:
        """Close the oldest idle connection of an address, or of that which has most of them."""
        idle = [
            transport
            for transport, entry in self._open.items()
            if entry.is_idle() and not transport.get_write_buffer_size()
        ]
        if address is None and idle:
            address = Counter(self._open[it].address for it in idle).most_common(1)[0][0]
        for transport in idle:
            if self._open[transport].address == address:
                self._abort(transport, "idle")
                return True
        return False

    def sweep(self) -> None:
        """Forget what is closed; abort who reads nothing, and the largest of too much unsent."""
        now, n_unsent = self._clock(), 0
        for transport, entry in list(self._open.items()):
            size = transport.get_write_buffer_size()
            if size < entry.n_unsent or not size or not entry.n_unsent:
                entry.progress_at = now
            entry.n_unsent = size
            n_unsent += size
            if size and now - entry.progress_at > self._stall_s:
                n_unsent -= self._abort(transport, "stalled")
            elif transport.is_closing() and not size:
                del self._open[transport]
        while n_unsent > self._max_unsent:
            largest = max(self._open, key=lambda transport: self._open[transport].n_unsent)
            n_unsent -= self._abort(largest, "unsent")

    def _abort(self, transport: asyncio.WriteTransport, code: str) -> int:
        transport.abort()
        n_unsent = self._open.pop(transport).n_unsent
        log.info("connection aborted", extra={"code": code, "bytes": n_unsent})
        return n_unsent

    def _fault(self, address: str) -> APIError | None:
        if len(self._open) >= self.limits.max_connections:
            return _too_many(503, f"this server has {len(self._open)} connections, which is all")
        most = self.limits.max_per_address
        if most is None:
            most = self.limits.max_connections if is_loopback(address) else MAX_PER_ADDRESS
        n_open = Counter(entry.address for entry in self._open.values())[address]
        if n_open >= most:
            return _too_many(429, f"{most} connections per client address are allowed")
        return None

    def _arm(self) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_SWEEP_S, self._tick)

    def _tick(self) -> None:
        self._timer = None
        self.sweep()
        if self._open:
            self._arm()


def client_address(transport: asyncio.BaseTransport) -> str:
    """Of a client: the address in IPv4; in IPv6 the network of 64 bits that one client has."""
    peer = transport.get_extra_info("peername")
    if not isinstance(peer, tuple):
        return ""
    return network_of(str(peer[0]))


def network_of(host: str) -> str:
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is not None:
            return str(address.ipv4_mapped)
        if not address.is_loopback:
            return str(ipaddress.ip_network((address, 64), strict=False))
    return str(address)


def _too_many(status: int, message: str) -> APIError:
    return APIError(status, "too_many_connections", f"{message}; close some", retry_after_s=1.0)
