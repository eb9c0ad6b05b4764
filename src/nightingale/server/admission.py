"""Which requests are computed now, which wait in the queue, and which are refused.

Knows nothing of workers, sockets and audio.
"""

from __future__ import annotations

import asyncio
from collections import deque

from nightingale.errors import BusyError


class Admission:
    """A number of slots and a queue in front of them, both bounded."""

    def __init__(self, max_running: int, max_queued: int) -> None:
        self._max_running, self._max_queued = max_running, max_queued
        self._queue: deque[asyncio.Future[None]] = deque()
        self._seconds = 2.0  # that a request takes, of late
        self.n_running = self.n_rejected = 0
        self.is_closed = False

    @property
    def n_queued(self) -> int:
        return len(self._queue)

    def close(self) -> None:
        """No new requests from now on; those in the queue still get their turn."""
        self.is_closed = True

    async def enter(self) -> None:
        """Take a slot, when there is one; refused at once if too many wait already."""
        if self.is_closed:
            raise BusyError("the server is shutting down", retry_after_s=5.0)
        if self.n_running < self._max_running:
            self.n_running += 1
            return
        if len(self._queue) >= self._max_queued:
            self.n_rejected += 1
            raise BusyError(
                f"the server is busy: {self.n_running} requests in progress, "
                f"{len(self._queue)} in the queue; try again soon",
                retry_after_s=self._seconds * (len(self._queue) + 1) / self._max_running,
            )
        turn = asyncio.get_running_loop().create_future()
        self._queue.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._release()  # it was its turn just now
            else:
                self._queue.remove(turn)
            raise

    def leave(self, seconds: float) -> None:
        """Give the slot back, held for so many seconds."""
        self._seconds += (seconds - self._seconds) / 8
        self._release()

    def _release(self) -> None:
        while self._queue:
            turn = self._queue.popleft()
            if not turn.done():
                turn.set_result(None)  # the slot is handed on, not freed
                return
        self.n_running -= 1
