"""A token bucket: how much may be done in a time, with a burst, in two numbers."""

from __future__ import annotations

import time
from collections.abc import Callable


class TokenBucket:
    """Holds at most `capacity` tokens and gains `rate` tokens a second; full at first.

    Every call takes constant time and memory, however many came before.
    """

    def __init__(
        self, capacity: float, rate: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.capacity, self._rate, self._clock = capacity, rate, clock
        self._n_tokens, self._counted_at = capacity, clock()

    def take(self, n_tokens: float) -> float:
        """Take them all: 0. Or take none: the seconds in which the missing ones are gained."""
        self._refill()
        if n_tokens <= self._n_tokens:
            self._n_tokens -= n_tokens
            return 0.0
        return (n_tokens - self._n_tokens) / self._rate

    def force(self, n_tokens: float) -> float:
        """Take them in any case, if need be as a debt; the seconds until that is paid."""
        self._refill()
        self._n_tokens -= n_tokens
        return max(0.0, -self._n_tokens / self._rate)

    def give_back(self, n_tokens: float) -> None:
        """What was taken for something that was then not done."""
        self._refill()
        self._n_tokens = min(self.capacity, self._n_tokens + n_tokens)

    def _refill(self) -> None:
        now = self._clock()
        gained = (now - self._counted_at) * self._rate
        self._n_tokens = min(self.capacity, self._n_tokens + gained)
        self._counted_at = now
