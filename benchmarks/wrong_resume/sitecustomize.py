"""Found first by a Python that `long_kills --plant` starts: a resume that loses one sample."""

from __future__ import annotations

from typing import Any

from nightingale.scheduler import Request, Scheduler

_admit = Scheduler.admit


def _admit_wrongly(self: Scheduler, *given: Any, **named: Any) -> Request:
    if named.get("n_skip"):
        named["n_skip"] += 1
    return _admit(self, *given, **named)


Scheduler.admit = _admit_wrongly  # type: ignore[method-assign]
