"""How long work goes on: a bar on a terminal, now and then a line in a pipe.

In a pipe nothing is printed before ten seconds have passed, so that short work stays silent.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

EVERY_S = 10.0  # between two lines in a pipe


class Sparse:
    """Lines in a pipe, at most one in ten seconds."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console, self._clock = console, clock
        self._last = self.started = clock()

    def report(self, line: Callable[[float], str]) -> None:
        """`line` is given the seconds since the beginning."""
        now = self._clock()
        if now - self._last >= EVERY_S:
            self._last = now
            self._console.print(line(now - self.started))


@contextmanager
def working(console: Console, what: str, *, quiet: bool = False) -> Iterator[None]:
    """Work that cannot say how far it has come."""
    if quiet:
        yield
    elif console.is_terminal:
        with console.status(what):
            yield
    else:
        with _heartbeat(console, what):
            yield


@contextmanager
def _heartbeat(console: Console, what: str) -> Iterator[None]:
    over, started = threading.Event(), time.monotonic()

    def beat() -> None:
        while not over.wait(EVERY_S):
            console.print(f"{what}: {time.monotonic() - started:.0f} s so far")

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextmanager
def counting(console: Console, what: str, total: int) -> Iterator[Callable[[int, str], None]]:
    """Work that knows how many steps it has: call it with those that are done, and of what."""
    if not console.is_terminal:
        lines = Sparse(console)
        yield lambda n_done, name: lines.report(lambda _s: f"{name}: {n_done} of {total}")
        return
    from rich import progress

    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TimeRemainingColumn(),
    )
    with progress.Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(what, total=total)
        yield lambda n_done, name: bar.update(task, completed=n_done, description=name)


Spoken = Callable[[float | None, float], None]  # share of the text, seconds of audio


@contextmanager
def speaking(console: Console, *, quiet: bool = False) -> Iterator[Spoken]:
    """The share of the text that is spoken, seconds of audio, and the time left."""
    if quiet:
        yield lambda _share, _seconds: None
        return
    if not console.is_terminal:
        lines = Sparse(console)
        yield lambda share, seconds: lines.report(lambda s: spoken_line(share, seconds, s))
        return
    from rich import progress

    columns = (
        progress.TaskProgressColumn(),
        progress.BarColumn(),
        progress.TextColumn("{task.fields[seconds]:.1f} s of audio"),
        progress.TimeRemainingColumn(),
    )
    with progress.Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=None, seconds=0.0)

        def report(share: float | None, seconds: float) -> None:
            total = None if share is None else 1.0
            bar.update(task, total=total, completed=share or 0.0, seconds=seconds)

        yield report


def spoken_line(share: float | None, seconds: float, elapsed_s: float) -> str:
    """The same for a pipe."""
    if not share:
        return f"{seconds:.1f} s of audio after {elapsed_s:.0f} s"
    left_s = elapsed_s * (1 - share) / share
    return f"{share:.0%} spoken, {seconds:.1f} s of audio, about {_duration(left_s)} left"


def _duration(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 90 else f"{seconds / 60:.0f} min"
