"""Who is taken for unresponsive: by a clock that stands still, and by real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from nightingale.server.heartbeat import PING_S, Activity, Heartbeat, activity

ENDED = Activity(frozenset(), 0)
SLEEPS, RUNS = Activity(frozenset("S"), 7), Activity(frozenset("SR"), 7)


class World:
    """A worker, seen from the front; a second at a time."""

    def __init__(self, *seen: Activity | None) -> None:
        self.now, self._seen = 0.0, list(seen)
        self.beat = Heartbeat(self._look, lambda: self.now)

    def _look(self) -> Activity | None:
        return self._seen.pop(0) if len(self._seen) > 1 else self._seen[0]

    def killed_at(self, *, answers_until: float = -1.0, late: float = 0.0) -> float | None:
        """When it is taken for unresponsive; None: not within two minutes."""
        while self.now < 120:
            self.now += PING_S + late
            if self.beat.tick():
                return self.now
            if self.now < answers_until:
                self.beat.note_message()
        return None


def test_a_process_that_does_nothing_has_three_seconds() -> None:
    assert World(SLEEPS).killed_at() == 3.0
    assert World(SLEEPS).killed_at(answers_until=50.5) == 53.0
    assert World(SLEEPS, ENDED).killed_at() == 3.0


def test_one_that_waits_for_a_processor_has_thirty() -> None:
    assert World(RUNS).killed_at() == 30.0
    assert World(None).killed_at() == 30.0, "where the kernel does not tell"


def test_one_that_computes_has_thirty() -> None:
    seen = [Activity(frozenset("S"), n) for n in range(200)]
    assert World(*seen).killed_at() == 30.0


def test_an_answer_in_time_is_enough() -> None:
    assert World(SLEEPS).killed_at(answers_until=1000) is None


def test_a_front_that_is_late_itself_blames_nobody() -> None:
    world = World(SLEEPS)
    world.beat.tick()
    for suspended_s in (3600, 7200):
        world.now += suspended_s
        assert not world.beat.tick()
    assert World(SLEEPS).killed_at(late=1.0) == 10.0, "always late: two of five are excused"


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="needs Linux")  # noqa: PTH110
def test_the_kernel_tells_a_stopped_process_from_a_busy_one() -> None:
    loop = subprocess.Popen([sys.executable, "-S", "-c", "while True: pass"])
    try:
        until = time.monotonic() + 20
        while (before := activity(loop.pid)) is None or before.n_ticks < 2:
            assert time.monotonic() < until
            time.sleep(0.02)
        assert before.states == {"R"}
        os.kill(loop.pid, signal.SIGSTOP)
        while (stopped := activity(loop.pid)) is None or stopped.states != {"T"}:
            assert time.monotonic() < until
        time.sleep(0.1)
        assert activity(loop.pid) == stopped
    finally:
        loop.kill()
        loop.wait()
    assert activity(loop.pid) == ENDED
