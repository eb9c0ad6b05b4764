"""How many replicas there should be, by what streams need. Knows nothing of Ray."""

from __future__ import annotations

import math
from collections.abc import Iterable

FULL_SLACK_S = 60.0  # reported by a replica where nobody listens


def wanted_replicas(
    streams: Iterable[float], slacks_s: Iterable[float], n_now: int, *, per_replica: float,
    min_slack_s: float,
) -> int:  # fmt: skip
    """`streams`: live ones of each replica; `slacks_s`: playback time that the tightest stream of
    each has left. Enough for the streams; one more while somebody is about to hear a gap."""
    n_for_streams = math.ceil(sum(streams) / per_replica)
    is_tight = any(slack_s < min_slack_s for slack_s in slacks_s)
    return max(1, n_for_streams, n_now + 1 if is_tight else 0)
