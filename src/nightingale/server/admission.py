"""Which utterances are computed now, which wait in the queue, and which are refused.

An open utterance holds a slot only while it is computed: while it waits for text or for its reader
it is paused, holds none, and costs memory alone. Three things are bounded: slots, the queue of new
utterances, and open utterances (in all, and for each owner: an API key or an address).

Order: a paused utterance that can go on takes the next free slot before any new one, because
somebody listens to it; it never waits for other paused ones, so there is no deadlock. New ones are
taken by turns from each owner, first in first out within an owner, and only as long as those that
are heard already stay gapless (`load.is_feasible`). If the queue is full, the owner with most
entries loses its newest one. Knows nothing of workers, sockets and audio.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from nightingale.errors import BusyError
from nightingale.server.load import Demand, is_feasible

_QUEUE_S = 30.0  # that a new utterance waits in the queue, at most
_LOOK_AGAIN_S = 0.1  # whether a stream is feasible changes with time
_SHUTTING_DOWN_S = 5.0

Factor = Callable[[int], float | None]  # real-time factor of each of so many streams


@dataclass(frozen=True, slots=True)
class AdmissionLimits:
    """How many utterances at once."""

    n_running: int = 8
    n_queued: int = 16
    n_open: int = 32  # running and paused; those in the queue are not counted
    n_running_per_owner: int = 8
    max_factor: float = (
        0.9  # predicted real-time factor up to which new ones are taken; 0: no limit
    )
    queue_s: float = _QUEUE_S

    def within(self, n_requests: int | None) -> AdmissionLimits:
        """The same, but no more than fit into the worker's memory; None: that is not known.

        So many fit if all become as long as they may; of open ones most are far from it.
        """
        if n_requests is None:
            return self
        return replace(
            self,
            n_running=min(self.n_running, n_requests),
            n_open=min(self.n_open, 4 * n_requests),
            n_running_per_owner=min(self.n_running_per_owner, n_requests),
        )

    @property
    def n_open_per_owner(self) -> int:
        """One owner cannot take all: a quarter is left for others."""
        return max(1, self.n_open - self.n_open // 4)


class State(Enum):
    """Of a slot."""

    PAUSED = "paused"
    QUEUED = "queued"
    RUNNING = "running"
    CLOSED = "closed"


class Slot:
    """What one open utterance holds: a slot when it is computed, a place in the queue, or nothing.

    `on_grant` is called when it gets the slot, and `on_refuse` when it is new and will not.
    """

    def __init__(
        self,
        admission: Admission,
        owner: str,
        demand: Callable[[], Demand],
        on_grant: Callable[[], None],
        on_refuse: Callable[[BusyError], None],
    ) -> None:
        self._admission, self.owner, self.demand = admission, owner, demand
        self.on_grant, self.on_refuse = on_grant, on_refuse
        self.state = State.PAUSED
        self.has_run = False
        self.is_reserved = False  # runs at once, beside all others
        self.deadline: asyncio.TimerHandle | None = None

    @property
    def is_running(self) -> bool:
        return self.state is State.RUNNING

    def request(self) -> None:
        """It has something to compute; granted at once, later, or refused."""
        if self.state is State.PAUSED:
            self._admission.enqueue(self)

    def release(self) -> None:
        """It has nothing to compute for now."""
        self._admission.withdraw(self, State.PAUSED)

    def close(self) -> None:
        """It is over."""
        self._admission.withdraw(self, State.CLOSED)


class Admission:
    """All open utterances of a server."""

    def __init__(self, limits: AdmissionLimits, factor: Factor = lambda _n: None) -> None:
        self.limits, self._factor = limits, factor
        self._slots: dict[Slot, None] = {}  # open, in their order
        self._resuming: deque[Slot] = deque()
        self._queues: OrderedDict[str, deque[Slot]] = OrderedDict()  # new ones, for each owner
        self._timer: asyncio.TimerHandle | None = None
        self._not_before = 0.0  # when to look again whether a new one is feasible
        self._seconds = 2.0  # that an utterance holds its slot, of late
        self.n_rejected = 0
        self.is_closed = False

    @property
    def n_open(self) -> int:
        return len(self._slots)

    @property
    def n_running(self) -> int:
        return sum(slot.is_running and not slot.is_reserved for slot in self._slots)

    @property
    def n_queued(self) -> int:
        """New ones."""
        return sum(map(len, self._queues.values()))

    @property
    def n_paused(self) -> int:
        return self.n_open - self.n_running - self.n_queued

    def close(self) -> None:
        """No new utterances from now on; those that are open still get their turn."""
        self.is_closed = True

    def open(
        self,
        owner: str,
        demand: Callable[[], Demand],
        on_grant: Callable[[], None],
        on_refuse: Callable[[BusyError], None],
        *,
        is_reserved: bool = False,
    ) -> Slot:
        """A new utterance, paused; refused if too many are open. Reserved: outside all limits."""
        if self.is_closed:
            raise BusyError("the server is shutting down", retry_after_s=_SHUTTING_DOWN_S)
        slot = Slot(self, owner, demand, on_grant, on_refuse)
        slot.is_reserved = is_reserved
        if not is_reserved:
            self._check_open(owner)
        self._slots[slot] = None
        return slot

    def _check_open(self, owner: str) -> None:
        limits = self.limits
        n_owned = sum(slot.owner == owner for slot in self._slots)
        n_owned -= len(self._queues.get(owner, ()))
        n_open = self.n_open - self.n_queued
        if n_open >= limits.n_open or n_owned >= limits.n_open_per_owner:
            self.n_rejected += 1
            raise BusyError(
                f"the server is busy: {n_open} utterances are open, {n_owned} of them yours; "
                "end some, or try again soon",
                retry_after_s=self._seconds,
            )

    def enqueue(self, slot: Slot) -> None:
        if slot.is_reserved:
            self._grant(slot)
            return
        slot.state = State.QUEUED
        if slot.has_run:
            self._resuming.append(slot)
        else:
            self._queues.setdefault(slot.owner, deque()).append(slot)
            loop = asyncio.get_running_loop()
            slot.deadline = loop.call_later(self.limits.queue_s, self._refuse, slot)
        self._fill()
        if self.n_queued > self.limits.n_queued:
            longest = max(self._queues.values(), key=len)
            mine = self._queues.get(slot.owner)
            self._refuse((mine if mine and len(mine) == len(longest) else longest)[-1])

    def withdraw(self, slot: Slot, state: State) -> None:
        """From wherever it is."""
        if slot.state is State.CLOSED:
            return
        if slot.state is State.QUEUED:
            self._remove(slot)
        slot.state = state
        if state is State.CLOSED:
            del self._slots[slot]
            self._not_before = 0.0
        self._fill()

    def note_duration(self, seconds: float) -> None:
        """An utterance took so long, from its first slot to its end."""
        self._seconds += (seconds - self._seconds) / 8

    def _remove(self, slot: Slot) -> None:
        if slot.deadline is not None:
            slot.deadline.cancel()
            slot.deadline = None
        if slot in self._resuming:
            self._resuming.remove(slot)
            return
        queue = self._queues[slot.owner]
        queue.remove(slot)
        if not queue:
            del self._queues[slot.owner]

    def _refuse(self, slot: Slot) -> None:
        self.n_rejected += 1
        n_running, n_queued = self.n_running, self.n_queued
        self._remove(slot)
        slot.state = State.PAUSED
        slot.on_refuse(
            BusyError(
                f"the server is busy: {n_running} requests in progress, {n_queued} in the queue; "
                "try again soon",
                retry_after_s=self._seconds * (n_queued + 1) / max(1, n_running),
            )
        )

    def _grant(self, slot: Slot) -> None:
        slot.state, slot.has_run = State.RUNNING, True
        slot.on_grant()

    def _fill(self) -> None:
        """Grant slots as far as there are any."""
        while self.n_running < self.limits.n_running and (slot := self._next()) is not None:
            self._remove(slot)
            if slot.owner in self._queues:
                self._queues.move_to_end(slot.owner)  # the next turn is somebody else's
            self._grant(slot)
        if self._timer is None and self._queues and self.limits.max_factor:
            self._timer = asyncio.get_running_loop().call_later(_LOOK_AGAIN_S, self._look_again)

    def _look_again(self) -> None:
        self._timer = None
        self._fill()

    def _next(self) -> Slot | None:
        running = Counter(
            slot.owner for slot in self._slots if slot.is_running and not slot.is_reserved
        )
        most = self.limits.n_running_per_owner
        for slot in self._resuming:
            if running[slot.owner] < most:
                return slot
        for owner, queue in self._queues.items():
            if running[owner] < most:
                return queue[0] if self._is_feasible(queue[0]) else None
        return None

    def _is_feasible(self, slot: Slot) -> bool:
        if not self.limits.max_factor:
            return True
        now = time.monotonic()
        if now < self._not_before:
            return False
        heard: Sequence[Demand] = [
            demand
            for other in self._slots
            if other.has_run and (demand := other.demand()).remaining_s > 0
        ]
        if not heard:
            return True  # one at least
        factor = self._factor(len(heard) + 1)
        share = math.inf if factor is None else factor / (len(heard) + 1)  # None: not measured
        if is_feasible(heard, slot.demand(), share, self.limits.max_factor):
            return True
        self._not_before = now + _LOOK_AGAIN_S
        return False
