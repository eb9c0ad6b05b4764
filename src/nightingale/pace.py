"""When a listener may start, so that the sound never stops once it has begun.

Sound that is made faster than it is heard can be given at once. Where a machine is slower than
that, the only cure is to wait first: for so much that what is missing is made while it plays. What
is given is never changed. Knows nothing of models.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator

from nightingale.core import AudioChunk

LETTERS_PER_SECOND = 15  # of speech, in English and near enough elsewhere


def expected_seconds(text: str) -> float:
    """How long a text will take to say, roughly."""
    return len(text) / LETTERS_PER_SECOND


def lead_s(rtf: float, seconds: float, chunk_s: float) -> float:
    """Seconds of sound to have first, if each takes `rtf` seconds to make and so many will come.

    A chunk is of no use before it is whole, so one more is needed.
    """
    return (1 - 1 / rtf) * max(0.0, seconds - chunk_s) + chunk_s if rtf > 1 else 0.0


class Paced:
    """Chunks, held back until the rest can be made in time."""

    def __init__(
        self,
        chunks: Iterable[AudioChunk],
        seconds: float,
        rtf: float | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """`rtf` is how fast sound was made before; if unknown, the second chunk will tell."""
        self._chunks, self._seconds, self._clock = chunks, seconds, clock
        self.rtf = rtf  # what it is after the first chunk, which waits for the text to be read
        self.waited_s = 0.0  # for the lead alone
        self.made_s = 0.0

    def __iter__(self) -> Iterator[AudioChunk]:
        held: list[AudioChunk] = []
        is_waiting, begun_at, first_s = True, 0.0, 0.0
        for chunk in self._chunks:
            now = self._clock()
            if not self.made_s:
                begun_at, first_s = now, len(chunk.samples) / chunk.rate_hz
            self.made_s += len(chunk.samples) / chunk.rate_hz
            if self.made_s > first_s:
                self.rtf = (now - begun_at) / (self.made_s - first_s)
            held.append(chunk)
            if is_waiting and not self._is_enough(len(chunk.samples) / chunk.rate_hz):
                continue
            if is_waiting:
                is_waiting, self.waited_s = False, now - begun_at
            yield from held
            held.clear()
        yield from held

    def _is_enough(self, chunk_s: float) -> bool:
        return self.rtf is not None and self.made_s >= lead_s(self.rtf, self._seconds, chunk_s)
