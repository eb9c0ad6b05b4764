"""Back-off and circuit breaker for a worker that fails: when the next one may be started.

    closed ── 5 failures within two minutes ──▶ open ── after 15 s, 30 s, .. ──▶ half-open
      ▲                                           ▲                                │   │
      │                                           └──────── the trial fails ───────┘   │
      └──────────────────────────────── the trial succeeds ────────────────────────────┘

While it is closed, the first failure costs no wait (a killed worker is replaced at once), the next
ones 0.5 s, 1 s, 2 s, with jitter. Knows nothing of processes; times are handed in.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Callable
from enum import StrEnum

MAX_FAILURES = 5
WINDOW_S = 120.0  # older failures are forgotten
FIRST_WAIT_S = 0.5
FIRST_OPEN_S, LONGEST_OPEN_S = 15.0, 300.0


class BreakerState(StrEnum):
    """Whether workers may be started."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half-open"  # one may, as a trial


class CircuitBreaker:
    """Failures in, waiting times out."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        jitter: Callable[[], float] = lambda: random.uniform(0.5, 1.0),
    ) -> None:
        self._clock, self._jitter = clock, jitter
        self._failures: deque[float] = deque(maxlen=MAX_FAILURES)
        self._n_opened = 0  # in a row
        self._not_before = 0.0
        self.reason = ""  # of the last failure

    @property
    def state(self) -> BreakerState:
        if not self._n_opened:
            return BreakerState.CLOSED
        return BreakerState.OPEN if self.wait_s > 0 else BreakerState.HALF_OPEN

    @property
    def wait_s(self) -> float:
        """Until the next start is allowed."""
        return max(0.0, self._not_before - self._clock())

    def note_failure(self, reason: str) -> None:
        """A start failed, or a worker died before it was of any use."""
        now, self.reason = self._clock(), reason
        while self._failures and now - self._failures[0] > WINDOW_S:
            self._failures.popleft()
        self._failures.append(now)
        if self._n_opened or len(self._failures) >= MAX_FAILURES:
            wait_s = min(FIRST_OPEN_S * 2**self._n_opened, LONGEST_OPEN_S)
            self._n_opened += 1
        else:
            n_before = len(self._failures) - 1
            wait_s = FIRST_WAIT_S * 2 ** (n_before - 1) * self._jitter() if n_before else 0.0
        self._not_before = now + wait_s

    def note_success(self) -> None:
        """A worker produced audio, or lived for a while."""
        self._failures.clear()
        self._n_opened, self._not_before, self.reason = 0, 0.0, ""
