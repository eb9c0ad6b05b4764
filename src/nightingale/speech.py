"""One utterance under way: what its listener holds."""

from __future__ import annotations

import time
from collections.abc import Iterator

from nightingale.core import AudioChunk, Timings


class Speech:
    """Chunks of sound, one after the other; what is known of them so far; and a way to stop.

    The work is done by whoever asks for the next chunk. Any thread may call `cancel`.
    """

    def __init__(self) -> None:
        self.chunks: Iterator[AudioChunk] = iter(())
        self.tokens: list[int] = []  # speech tokens that stand for sound
        self.n_tokens = 0  # all of them
        self.is_complete = True  # False: a part of the text was not said
        self.unsaid: list[str] = []  # roughly those parts, where the model can tell
        self.is_cancelled = False
        self.clock = Clock()

    def __iter__(self) -> Iterator[AudioChunk]:
        return self

    def __next__(self) -> AudioChunk:
        return next(self.chunks)

    def cancel(self) -> None:
        """Stop after the step that is being computed; no chunk comes any more."""
        self.is_cancelled = True
        self.is_complete = False

    @property
    def timings(self) -> Timings:
        """Where the time went so far, without that of the listener."""
        return Timings(**self.clock.spent_ms)


class Clock:
    """Laps in milliseconds, summed up by what they were for."""

    def __init__(self) -> None:
        self.spent_ms = dict.fromkeys(Timings.__dataclass_fields__, 0.0)
        self.restart()

    def restart(self) -> None:
        self._last = time.perf_counter()

    def lap(self, purpose: str) -> None:
        now = time.perf_counter()
        self._last, passed = now, now - self._last
        self.spent_ms[purpose] += 1e3 * passed
