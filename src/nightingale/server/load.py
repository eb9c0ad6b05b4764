"""Whether one more stream can be heard without a gap, beside those that are heard already.

Each stream needs its sound made before it is played. Until a time t from now, the streams together
need what each of them plays until then and does not have yet; that must be made in less than t.
(Scheduling theory calls this the processor demand criterion, of earliest deadline first, which is
how the worker's scheduler chooses its next step.) For long streams it says that the sum of their
real-time factors stays below a bound; and a short text fits beside a stream that is well ahead.
Knows nothing of clocks and requests.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

_STEP_S = 1.0  # of sound that are made in one step, which is not interrupted


class Demand(NamedTuple):
    """What a stream still needs, in seconds of sound."""

    ahead_s: float  # made, and not played yet
    remaining_s: float  # not made yet
    speed: float = 1.0  # of the speech: a second of sound takes so many times as long to make


def is_feasible(heard: Sequence[Demand], new: Demand, share: float, max_factor: float) -> bool:
    """If a second of sound at speed 1 takes `share` seconds to make, and `max_factor` of the time
    is used.

    What is needed grows while a stream plays what is not made yet, so it is most critical when one
    of them has been made to its end. Steps are not interrupted, so each stream must be ahead by
    what a step of the new one takes, its own next step, and those of all that are due earlier.
    """
    for n_earlier, (ahead_s, *_) in enumerate(sorted(heard)):
        if ahead_s < (2 + n_earlier) * _STEP_S * share:
            return False
    demands = [*heard, new]
    for critical in demands:
        at_s = critical.ahead_s + critical.remaining_s
        needed_s = sum(
            demand.speed * min(demand.remaining_s, max(0.0, at_s - demand.ahead_s))
            for demand in demands
        )
        if share * needed_s > max_factor * at_s:
            return False
    return True
