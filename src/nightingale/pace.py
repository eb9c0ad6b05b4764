"""When a listener may start, so that the sound never stops once it has begun.

Sound that is made faster than it is heard can be given almost at once. Where a machine is slower
than that, the only cure is to wait first: for so much that what is missing is made while it plays.
What is given is never changed. Knows nothing of models and sockets; times are handed in.
"""

from __future__ import annotations

import math
import re
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence

from nightingale.core import GRID, TOKENS_PER_SECOND, AudioChunk

LETTERS_PER_SECOND = 15  # of speech, in English and near enough elsewhere
LETTERS_PER_WIDE = 3  # a Chinese, Japanese or Korean character takes as long as so many letters
JITTER = 0.2  # one chunk may take so much more or less time than the real-time factor says
SPREAD = 6 * JITTER / math.sqrt(3)  # and many of them, independently: six standard deviations
WHOLE_PART_S = 20.0  # the longest part of a text, for plans that render each part at once

_HALF_LIFE_S = 20.0  # seconds of sound after which a measurement counts half
_SENTENCES = re.compile(r".*(?:[.!?…。！？؟।]['\")\]}»”’」』）]*\s|[。！？\f])", re.DOTALL)


def expected_seconds(text: str) -> float:
    """How long a text will take to say, roughly."""
    n_wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    return (len(text) + (LETTERS_PER_WIDE - 1) * n_wide) / LETTERS_PER_SECOND


def written_seconds(text: str) -> float:
    """Likewise of the whole sentences of a text that is still being written."""
    found = _SENTENCES.match(text)
    return expected_seconds(found[0]) if found else 0.0


def window_seconds(grid: Sequence[int]) -> tuple[float, ...]:
    """The lengths of the chunks that a grid of windows gives; without one, whole parts."""
    return tuple(n_tokens / TOKENS_PER_SECOND for n_tokens in grid) or (WHOLE_PART_S,)


def lead_s(rtf: float, coming: Iterable[float]) -> float:
    """Seconds of sound to have before a listener starts, if chunks of these lengths will come.

    Chunk k is there when all chunks up to it are made, and is needed when all before it are heard.
    The lead is the latest that any of them would be, with an allowance for jitter: for each chunk
    the worst case, for many of them what independent deviations add up to.
    """
    lead = made = heard = squares = 0.0
    for chunk_s in coming:
        made, squares = made + chunk_s, squares + chunk_s * chunk_s
        lead = max(lead, rtf * (made + _allowance(made, squares)) - heard)
        heard += chunk_s
    return lead


def _allowance(seconds: float, squares: float) -> float:
    """For jitter, of chunks of so many seconds in all, and so many squared."""
    return min(JITTER * seconds, SPREAD * math.sqrt(squares))


class Prebuffer:
    """Told of each chunk as it is made, it says from when on a listener can play without a gap."""

    def __init__(
        self, rtf: float | None = None, windows: Sequence[float] = window_seconds(GRID)
    ) -> None:
        """`rtf` is how fast sound was made before; if unknown, the second chunk will show it."""
        self.prior, self._windows = rtf, windows
        self._n_chunks = 0
        self._last_s = 0.0
        self._busy_s = self._measured_s = self._squares = 0.0  # of all chunks but the first
        self.first_at = self.last_at = 0.0
        self.made_s = 0.0

    def note(
        self, chunk_s: float, at: float, *, idle_s: float = 0.0, is_measure: bool = True
    ) -> float | None:
        """A chunk is there. Returns how long it took since the last one, without the time spent
        waiting for text; None if this is no measure of speed."""
        busy_s = None
        if not self._n_chunks:
            self.first_at = at
        elif is_measure:
            busy_s = max(0.0, at - self.last_at - idle_s)
            self._busy_s += busy_s
            self._measured_s += chunk_s
            self._squares += chunk_s * chunk_s
        self._n_chunks += 1
        self.made_s += chunk_s
        self._last_s, self.last_at = chunk_s, at
        return busy_s

    @property
    def rtf(self) -> float | None:
        """Seconds of time for a second of sound: what was known, as far as this request bears it
        out. What jitter explains is no reason to believe otherwise.

        The first chunk is not counted: it waits for the text to be read.
        """
        if not self._measured_s:
            return self.prior
        if self.prior is None:
            return self._busy_s / self._measured_s
        slack_s = self.prior * _allowance(self._measured_s, self._squares)
        low, high = self._busy_s - slack_s, self._busy_s + slack_s
        return min(max(self.prior, low / self._measured_s), high / self._measured_s)

    def start_at(self, expected_s: float) -> float:
        """When a listener may start, if so much sound is expected in all and nothing new comes."""
        if not self._n_chunks or self.rtf is None:
            return math.inf
        coming = self._coming(max(0.0, expected_s - self.made_s))
        return self.last_at + max(0.0, lead_s(self.rtf, coming) - self.made_s)

    def _coming(self, seconds: float) -> Iterator[float]:
        """Lengths of the chunks to come. One is never longer than its window, so the next window
        is at least the one behind that."""
        windows, last = self._windows, len(self._windows) - 1
        held = next((n for n, size in enumerate(windows) if size >= self._last_s - 1e-6), last)
        at = max(self._n_chunks, held + 1)
        while seconds > 0:
            chunk_s = min(windows[min(at, last)], seconds)
            yield chunk_s
            at, seconds = at + 1, seconds - chunk_s


class RecentFactor:
    """The real-time factor of late, for each number of streams that are made beside each other."""

    def __init__(self) -> None:
        self._sums: dict[int, tuple[float, float]] = {}  # time and sound, both fading

    def note(self, n_streams: int, busy_s: float, sound_s: float) -> None:
        """So much sound took so long, while so many were being made."""
        fade = 0.5 ** (sound_s / _HALF_LIFE_S)
        time_s, known_s = self._sums.get(n_streams, (0.0, 0.0))
        self._sums[n_streams] = time_s * fade + busy_s, known_s * fade + sound_s

    def at(self, n_streams: int) -> float | None:
        """With so many; if that was never seen, from the nearest number: they share one model."""
        if not self._sums:
            return None
        nearest = min(self._sums, key=lambda known: abs(known - n_streams))
        time_s, sound_s = self._sums[nearest]
        return time_s / sound_s * n_streams / nearest


class Paced:
    """Chunks, held back until the rest can be made in time."""

    def __init__(
        self,
        chunks: Iterable[AudioChunk],
        seconds: float,
        rtf: float | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._chunks, self._seconds, self._clock = chunks, seconds, clock
        self._prebuffer = Prebuffer(rtf)
        self.waited_s = 0.0  # for the lead alone

    @property
    def rtf(self) -> float | None:
        return self._prebuffer.rtf

    @property
    def made_s(self) -> float:
        return self._prebuffer.made_s

    def __iter__(self) -> Iterator[AudioChunk]:
        held: list[AudioChunk] = []
        is_waiting = True
        for chunk in self._chunks:
            now = self._clock()
            self._prebuffer.note(len(chunk.samples) / chunk.rate_hz, now)
            held.append(chunk)
            if is_waiting and now < self._prebuffer.start_at(self._seconds):
                continue
            if is_waiting:
                is_waiting, self.waited_s = False, now - self._prebuffer.first_at
            yield from held
            held.clear()
        yield from held
