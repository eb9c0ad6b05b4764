"""Sound that leaves while it is still being made, and a line that tells how it goes."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import chain, islice
from typing import TYPE_CHECKING, Protocol

from nightingale.audio.audible import FirstAudible
from nightingale.cli import player

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from rich.console import Console

    from nightingale.cli.preflight import Target
    from nightingale.prebuffer import Prebuffered


class Sink(Protocol):
    """What takes encoded sound."""

    def write(self, piece: bytes, /) -> object: ...


def deliver(
    samples: Iterable[NDArray[np.float32]], target: Target, cancel: Callable[[], None]
) -> None:
    """Write to standard output, or play, as chunks come."""
    from nightingale.audio.encode import encode

    sink: AbstractContextManager[Sink] = (
        nullcontext(_StandardOutput()) if target.is_stdout else player.live()
    )
    with sink as opened:
        chunks = iter(samples)
        first = list(islice(chunks, 1))  # a text that is refused leaves no header behind
        try:
            for piece in encode(chain(first, chunks), target.format, target.rate_hz):
                opened.write(piece)
        except BrokenPipeError:
            cancel()  # nobody listens any more


class _StandardOutput:
    def write(self, piece: bytes) -> None:
        try:
            sys.stdout.buffer.write(piece)
            sys.stdout.buffer.flush()
        except BrokenPipeError:
            # Python flushes it once more at its end, and would complain.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise


class Meter:
    """What a listener notices: when the first sound is heard, and how much there is ahead."""

    def __init__(self, paced: Prebuffered) -> None:
        self.paced = paced
        self.started = time.perf_counter()
        self.given_s = 0.0
        self._first = FirstAudible()
        self._first_s: float | None = None  # the first chunk, which may be silence

    def samples(self) -> Iterator[NDArray[np.float32]]:
        for chunk in self.paced:
            passed_s = time.perf_counter() - self.started
            if self._first_s is None:
                self._first_s = passed_s
            self._first.note(chunk.samples, passed_s)
            self.given_s += len(chunk.samples) / chunk.rate_hz
            yield chunk.samples

    def line(self) -> str:
        """For the terminal, while it goes on."""
        if self._first_s is None:
            return f"{self.paced.made_s:.1f} s of audio, buffering"
        ahead_s = self.given_s - (time.perf_counter() - self.started - self._first_s)
        return f"{self._heard()}   {ahead_s:+.1f} s ahead{self._rate()}"

    def summary(self) -> str:
        """Afterwards."""
        text = f"{self.given_s:.1f} s of audio, {self._heard()}"
        if self.paced.waited_s > 0 and (self.paced.rtf or 0) > 1:
            text += (
                f", {self.paced.waited_s:.1f} s of it buffering: this machine is slower than speech"
            )
        return text + self._rate()

    def _heard(self) -> str:
        if self._first.at_s is None:
            return "nothing audible yet"
        return f"first audible sample after {self._first.at_s:.2f} s"

    def _rate(self) -> str:
        return "" if self.paced.rtf is None else f"   ({self.paced.rtf:.2f} x real time)"


@contextmanager
def shown(meter: Meter, console: Console, *, quiet: bool) -> Iterator[None]:
    """A line on the terminal that is kept up to date, and a summary; in a pipe, nothing."""
    if quiet or not console.is_terminal:
        yield
        return
    from rich.live import Live

    with Live(console=console, get_renderable=meter.line, refresh_per_second=8, transient=True):
        yield
    console.print(meter.summary())
