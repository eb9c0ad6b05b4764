"""`say --stream`: sound leaves while it is still being made, and a line tells how it goes."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, TYPE_CHECKING

from nightingale.cli.terminal import find_live_player
from nightingale.errors import OptionError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from rich.console import Console

    from nightingale.pace import Paced
    from nightingale.speech import Speech


def deliver(
    speech: Speech, meter: Meter, output: str | None, format_: str, rate: int | None
) -> None:
    """Write or play chunks as they come."""
    from nightingale.audio.encode import encode, write

    if output is not None and output != "-":
        write(Path(output), meter.samples(), format_, rate)
        return
    with _standard_output() if output == "-" else _player() as sink:
        try:
            for piece in encode(meter.samples(), format_, rate):
                sink.write(piece)
                sink.flush()
        except BrokenPipeError:
            speech.cancel()  # nobody listens any more


class Meter:
    """What a listener notices: how long the first sound took, and how much is there ahead."""

    def __init__(self, paced: Paced) -> None:
        self.paced = paced
        self.started = time.perf_counter()
        self.first_s: float | None = None
        self.given_s = self.total_s = 0.0

    def samples(self) -> Iterator[NDArray[np.float32]]:
        for chunk in self.paced:
            if self.first_s is None:
                self.first_s = time.perf_counter() - self.started
            self.given_s += len(chunk.samples) / chunk.rate_hz
            yield chunk.samples
        self.total_s = time.perf_counter() - self.started

    def line(self) -> str:
        """For the terminal, while it goes on."""
        if self.first_s is None:
            return f"{self.paced.made_s:.1f} s of speech, waiting for enough"
        ahead_s = self.given_s - (time.perf_counter() - self.started - self.first_s)
        return f"first sound after {self.first_s:.2f} s   {ahead_s:+.1f} s ahead{self._rate()}"

    def summary(self) -> str:
        """Afterwards."""
        text = f"{self.given_s:.1f} s of speech, first sound after {self.first_s or 0:.2f} s"
        if self.paced.waited_s > 0 and (self.paced.rtf or 0) > 1:
            text += f", of which {self.paced.waited_s:.1f} s to be ahead: this machine is slower"
        return text + self._rate()

    def _rate(self) -> str:
        return "" if self.paced.rtf is None else f"   {self.paced.rtf:.2f} s of work for each"


@contextmanager
def shown(meter: Meter, console: Console) -> Iterator[None]:
    """A line on the terminal that is kept up to date; in a pipe, nothing."""
    if not console.is_terminal:
        yield
        return
    from rich.live import Live

    with Live(console=console, get_renderable=meter.line, refresh_per_second=8, transient=True):
        yield


@contextmanager
def _standard_output() -> Iterator[IO[bytes]]:
    yield sys.stdout.buffer


@contextmanager
def _player() -> Iterator[IO[bytes]]:
    player = find_live_player()
    if player is None:
        raise OptionError(
            "no player here takes sound as it comes; install ffmpeg, mpv or alsa-utils, "
            "or send it on with -o -"
        )
    process = subprocess.Popen(player, stdin=subprocess.PIPE)
    assert process.stdin is not None
    try:
        yield process.stdin
    finally:
        with suppress(BrokenPipeError):
            process.stdin.close()
        process.wait()
