"""Back-off and circuit breaker, by a clock that stands still."""

from __future__ import annotations

import pytest

from nightingale.server.breaker import (
    FIRST_OPEN_S,
    LONGEST_OPEN_S,
    MAX_FAILURES,
    WINDOW_S,
    BreakerState,
    CircuitBreaker,
)


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def breaker(clock: Clock) -> CircuitBreaker:
    return CircuitBreaker(clock, jitter=lambda: 1.0)


def fail(breaker: CircuitBreaker, clock: Clock, n: int) -> list[float]:
    """So many starts that fail as soon as they are allowed; what was waited for behind each."""
    waits = []
    for _ in range(n):
        breaker.note_failure("it died")
        waits.append(breaker.wait_s)
        if breaker.state is BreakerState.CLOSED:
            clock.now += breaker.wait_s
    return waits


def test_the_first_failure_costs_no_wait_and_later_ones_more_and_more(
    breaker: CircuitBreaker, clock: Clock
) -> None:
    assert breaker.wait_s == 0.0
    assert fail(breaker, clock, MAX_FAILURES - 1) == [0.0, 0.5, 1.0, 2.0]
    assert breaker.state is BreakerState.CLOSED


def test_it_opens_and_lets_one_try_and_closes(breaker: CircuitBreaker, clock: Clock) -> None:
    fail(breaker, clock, MAX_FAILURES)
    assert (breaker.state, breaker.wait_s) == (BreakerState.OPEN, FIRST_OPEN_S)
    clock.now += FIRST_OPEN_S
    assert (breaker.state, breaker.wait_s) == (BreakerState.HALF_OPEN, 0.0)
    breaker.note_success()
    assert breaker.state is BreakerState.CLOSED
    assert fail(breaker, clock, 1) == [0.0], "a success forgets the failures before"


def test_a_trial_that_fails_opens_it_for_longer(breaker: CircuitBreaker, clock: Clock) -> None:
    fail(breaker, clock, MAX_FAILURES)
    waits = []
    for _ in range(8):
        clock.now += breaker.wait_s
        assert breaker.state == "half-open"
        waits += fail(breaker, clock, 1)
        assert breaker.state == "open"
    assert waits[:2] == [2 * FIRST_OPEN_S, 4 * FIRST_OPEN_S]
    assert waits[-1] == LONGEST_OPEN_S


def test_old_failures_are_forgotten(breaker: CircuitBreaker, clock: Clock) -> None:
    for _ in range(3 * MAX_FAILURES):
        breaker.note_failure("it died")
        clock.now += WINDOW_S / (MAX_FAILURES - 2)
    assert breaker.state is BreakerState.CLOSED


def test_waits_are_spread(clock: Clock) -> None:
    """Many servers that lost the same disk do not come back in the same instant."""
    waits = set()
    for _ in range(20):
        breaker = CircuitBreaker(clock)
        breaker.note_failure("")
        breaker.note_failure("")
        waits.add(breaker.wait_s)
    assert len(waits) > 10
    assert all(0.25 <= wait <= 0.5 for wait in waits)
