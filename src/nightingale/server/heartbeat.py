"""Whether a worker responds: a ping each second, and what the kernel says about its process.

A worker answers pings in its event loop, beside the thread that computes. Three seconds without an
answer mean trouble, but not which: a stopped or deadlocked process will never answer, one on a
busy machine will. So a process that does nothing is unresponsive then, one that runs, or wants to
and gets no processor or no disk, only after 30 seconds. A ping that this side sent late does not
count, for then this process was the slow one (or the machine was suspended), unless it always is.
Knows nothing of sockets.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

PING_S = 1.0
MAX_MISSED = 2  # pings without an answer, the next one being due, of a process that does nothing
MAX_MISSED_BUSY = 29  # of one that computes, or waits for a processor or a disk
_LATE_S = 0.5
_MAX_EXCUSED = 2  # late pings in a row
_BUSY = frozenset("RD")  # states: it runs, or it waits for a processor or a disk


@dataclass(frozen=True, slots=True)
class Activity:
    """What a process does."""

    states: frozenset[str]  # of its threads, letters as in ps
    n_ticks: int  # of processor time so far, of all threads


def activity(pid: int) -> Activity | None:
    """As the kernel sees it: no threads if it has ended; None where the kernel does not tell."""
    try:
        threads = [_fields(path) for path in Path(f"/proc/{pid}/task").glob("*/stat")]
        ticks = sum(int(fields[11]) + int(fields[12]) for fields in threads)
    except (OSError, ValueError, IndexError):
        threads, ticks = [], 0  # it ended just now
    if not threads and not Path("/proc/self/task").exists():
        return None
    return Activity(frozenset(fields[0] for fields in threads), ticks)


def _fields(path: Path) -> list[str]:
    text = path.read_text(encoding="utf-8", errors="replace")
    return text.rpartition(")")[2].split()  # the name before it may hold anything


class Heartbeat:
    """Pings that were sent and answered, for one worker."""

    def __init__(
        self,
        look: Callable[[], Activity | None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._look, self._clock = look, clock
        self._pinged_at = clock()
        self._n_missed = self._n_late = 0
        self._before: Activity | None = None  # when the last answer was due

    def note_message(self) -> None:
        """Anything from the worker is an answer."""
        self._n_missed = 0

    def tick(self) -> bool:
        """Call this every `PING_S`, then send a ping; True: the worker is unresponsive."""
        now = self._clock()
        is_late, self._pinged_at = now - self._pinged_at > PING_S + _LATE_S, now
        self._n_late = self._n_late + 1 if is_late else 0
        is_late = is_late and self._n_late <= _MAX_EXCUSED
        if self._n_missed == 0:
            self._before = self._look()
        if self._n_missed >= MAX_MISSED and not is_late:
            limit = MAX_MISSED_BUSY if self._is_busy() else MAX_MISSED
            if self._n_missed >= limit:
                return True
        self._n_missed += not is_late
        return False

    def _is_busy(self) -> bool:
        seen, before = self._look(), self._before
        if seen is None or before is None:
            return True  # not known: be careful
        has_run = seen.n_ticks > before.n_ticks
        self._before = seen
        return has_run or bool(seen.states & _BUSY)
