"""Request bodies while they are received: how large, how slow, and how much of all at once."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

from starlette.exceptions import HTTPException

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]

UPLOADS = frozenset(
    ("/v1/audio/voices", "/audio/voices", "/v1/voices", "/voices", "/upload_reference")
)
_MAX_JSON_BYTES = 64 * 2**20  # of all bodies that are not uploads
_MAX_UPLOAD_BYTES = 128 * 2**20


class ByteBudget:
    """Bytes that are held at once: so many in all, and half of that for one client address."""

    def __init__(self, n_most: int) -> None:
        self._n_most, self._n_bytes = n_most, 0
        self._by_address: Counter[str] = Counter()

    def take(self, address: str, n_bytes: int) -> bool:
        n_all, n_own = self._n_bytes + n_bytes, self._by_address[address] + n_bytes
        if n_all > self._n_most or n_own > self._n_most // 2:
            return False
        self._n_bytes, self._by_address[address] = n_all, n_own
        return True

    def give_back(self, address: str, n_bytes: int) -> None:
        self._n_bytes -= n_bytes
        self._by_address[address] -= n_bytes
        if not self._by_address[address]:
            del self._by_address[address]


class Bodies:
    """All bodies that are being received; uploads cannot take the room of other requests."""

    def __init__(self, max_json: int, max_upload: int, body_s: float, min_rate: int) -> None:
        self._json, self._uploads = ByteBudget(_MAX_JSON_BYTES), ByteBudget(_MAX_UPLOAD_BYTES)
        self._max_json, self._max_upload = max_json, max_upload
        self._body_s, self._min_rate = body_s, min_rate

    def max_bytes(self, path: str) -> int:
        return self._max_upload if path in UPLOADS else self._max_json

    def bounded(self, path: str, address: str, receive: Receive) -> BoundedBody:
        budget = self._uploads if path in UPLOADS else self._json
        max_bytes = self.max_bytes(path)
        return BoundedBody(receive, budget, address, max_bytes, self._body_s, self._min_rate)


@dataclass(slots=True, eq=False)
class BoundedBody:
    """`receive` of one request, with limits of size and time, and a share of the budget.

    What it raises goes through whoever is reading the body, up to the application's handler.
    """

    _receive: Receive
    _budget: ByteBudget
    _address: str
    _max_bytes: int
    _body_s: float
    _min_rate: int
    _n_bytes: int = 0
    _n_held: int = 0
    _begun_at: float | None = None
    _is_complete: bool = False

    async def receive(self) -> Message:
        if self._is_complete:
            return await self._receive()
        if self._begun_at is None:
            self._begun_at = time.monotonic()
        limit_s = self._body_s + self._n_bytes / self._min_rate
        left_s = self._begun_at + limit_s - time.monotonic()
        try:
            async with asyncio.timeout(left_s):
                message = await self._receive()
        except TimeoutError:
            raise HTTPException(
                408,
                f"the request body did not come within {self._body_s:g} s and one more for each "
                f"{self._min_rate >> 10} KiB",
            ) from None
        self._count(len(message.get("body", b"")))
        if not message.get("more_body", False):
            self._is_complete = True
            self.release()
        return message

    def _count(self, n_bytes: int) -> None:
        self._n_bytes += n_bytes
        if self._n_bytes > self._max_bytes:
            raise HTTPException(413, too_large(self._max_bytes))
        if not self._budget.take(self._address, n_bytes):
            message = "too many request bodies are being received; try again soon"
            raise HTTPException(503, message, {"retry-after": "1"})
        self._n_held += n_bytes

    def release(self) -> None:
        """Nothing is held any more; may be called twice."""
        if self._n_held:
            self._budget.give_back(self._address, self._n_held)
            self._n_held = 0


def too_large(n_most: int) -> str:
    return f"the request body may have at most {n_most} bytes on this route"
