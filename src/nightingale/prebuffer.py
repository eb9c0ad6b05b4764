"""When a listener may start, so that the sound never stops once it has begun.

Sound that is made faster than it is heard can be given almost at once. Where a machine is slower
than that, the only cure is to wait first: for so much that what is missing is made while it plays.
What is given is never changed. Knows nothing of models and sockets; times are handed in.
"""

from __future__ import annotations

import math
import time
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import takewhile

from nightingale.core import TOKENS_PER_SECOND, WINDOW_SIZES, AudioChunk
from nightingale.errors import TextError
from nightingale.text.markup import Markup
from nightingale.text.split import CUT, EAGER, SINGLE, WHOLE, TextPart, split, split_stream
from nightingale.text.structure import MARK, STAND_IN

LETTERS_PER_SECOND = 15  # of speech, in English and near enough elsewhere
LETTERS_PER_DIGIT = 6  # that are said for one; of the figures of benchmarks/spoken_figures.py
LETTERS_PER_WIDE = 3  # a Chinese, Japanese or Korean character takes as long as so many letters
PAUSE_S = 0.3  # behind each part of a text
WHOLE_PART_S = 20.0  # the longest part of a text, for plans that render each part at once

JITTER = 0.2  # one chunk may take so much more or less time than the real-time factor says
SPREAD = 6 * JITTER / math.sqrt(3)  # and many of them, independently: six standard deviations
WINDOW_S = 0.25  # of the time for a window of a second is needed for shorter ones, too
AHEAD_S = 0.12  # of tokens that the first window of a part waits for, to look ahead
HELD_S = 0.26  # of sound that is held back inside a part: by the vocoder and the watermark

_HALF_LIFE_S = 20.0  # seconds of sound after which a measurement counts half
_MAX_LETTERS = 2000  # of a text, that are split into parts to know when they start
_SUBSTITUTED = "something"  # stands for what is said for other words
_FAR_S = 10.0  # parts behind that are taken to be so long

Coming = tuple[float, float]  # a chunk: how much sound could be made in the time that it takes, and
# how much sound it has


def expected_seconds(text: str) -> float:
    """How long a text will take to say, roughly."""
    n_wide = sum(unicodedata.east_asian_width(character) in "WF" for character in text)
    n_more = (LETTERS_PER_WIDE - 1) * n_wide + (LETTERS_PER_DIGIT - 1) * sum(map(str.isdigit, text))
    return (len(text) + n_more) / LETTERS_PER_SECOND


def part_seconds(
    text: str, *, is_arriving: bool = False, is_open: bool = False, is_single: bool = False
) -> list[float]:
    """How long the parts of a text will be. Of one that is open, those whose end is written."""
    known = text[:_MAX_LETTERS]
    known = _plain(known)
    parts: Iterable[TextPart | None]
    if is_arriving:
        is_cut = is_open or len(text) > len(known)
        parts = split_stream([known, ""] if is_cut else [known], SINGLE if is_single else EAGER)
    else:
        parts = split(known, SINGLE if is_single else WHOLE)
    seconds = [expected_seconds(part.text) for part in takewhile(bool, parts) if part]
    n_far = len(text) - len(known)
    far_s = expected_seconds(text[_MAX_LETTERS:]) if n_far else 0.0
    return seconds + [_FAR_S] * round(far_s / _FAR_S)


def _plain(text: str) -> str:
    """Without mark-up; a change of voice ends a part."""
    try:
        return Markup().whole(text).replace(MARK, CUT).replace(STAND_IN, _SUBSTITUTED)
    except TextError:
        return text


def window_seconds(grid: Sequence[int], speed: float = 1.0) -> tuple[float, ...]:
    """The lengths of the chunks that a grid of windows gives; without one, whole parts."""
    return tuple(n_tokens / TOKENS_PER_SECOND / speed for n_tokens in grid) or (WHOLE_PART_S,)


def prebuffer_s(rtf: float, coming: Iterable[Coming]) -> float:
    """Seconds of sound to have before a listener starts, if these chunks will come.

    Chunk k is there when all chunks up to it are made, and is needed when all before it are heard.
    The lead is the latest that any of them would be, with an allowance for jitter: for each chunk
    the worst case, for many of them what independent deviations add up to.
    """
    lead = made = heard = squares = 0.0
    for cost_s, sound_s in coming:
        made, squares = made + cost_s, squares + cost_s * cost_s
        lead = max(lead, rtf * (made + _allowance(made, squares)) - heard)
        heard += sound_s
    return lead


def _allowance(seconds: float, squares: float) -> float:
    """For jitter, of chunks of so many seconds in all, and so many squared."""
    return min(JITTER * seconds, SPREAD * math.sqrt(squares))


class Prebuffer:
    """Fed with each chunk as it is made, it says from when on a listener can play without a gap."""

    def __init__(
        self, rtf: float | None = None, windows: Sequence[float] = window_seconds(WINDOW_SIZES)
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
        if chunk_s > 2 * self._windows[-1]:
            self._windows = window_seconds(())  # these are no windows, but whole parts
        self._n_chunks += 1
        self.made_s += chunk_s
        self._last_s, self.last_at = chunk_s, at
        return busy_s

    @property
    def measured_rtf(self) -> float | None:
        """Seconds of time for a second of sound, of all chunks here but the first."""
        return self._busy_s / self._measured_s if self._measured_s else None

    @property
    def rtf(self) -> float | None:
        """Seconds of time for a second of sound: what was known, as far as this request bears it
        out. What jitter explains is no reason to believe otherwise.

        The first chunk is not counted: it waits for the text to be read.
        """
        if self.prior is None or not self._measured_s:
            return self.measured_rtf or self.prior
        slack_s = self.prior * _allowance(self._measured_s, self._squares)
        free_s = self.prior * (HELD_S + PAUSE_S)  # the last chunk of a part has more than was made
        low, high = self._busy_s - slack_s, self._busy_s + slack_s + free_s
        return min(max(self.prior, low / self._measured_s), high / self._measured_s)

    def start_at(self, parts: Iterable[float]) -> float:
        """When a listener may start, if the text has parts of so many seconds, each spoken behind
        the other, and if nothing new comes until then."""
        if not self._n_chunks or self.rtf is None:
            return math.inf
        return self.last_at + max(0.0, prebuffer_s(self.rtf, self._coming(parts)) - self.made_s)

    def _coming(self, parts: Iterable[float]) -> Iterator[Coming]:
        """The chunks that are not made yet, part after part."""
        made_s, is_first = self.made_s, True
        for part_s in parts:
            left_s = part_s - made_s
            if left_s > 0:
                # Lengths are guesses: near the end of a part, the next one may begin right now.
                is_inside = left_s > part_s / 4 and (is_first or made_s > part_s / 4)
                yield from self._windows_of(left_s, is_begun=is_inside)
            made_s, is_first = max(0.0, made_s - part_s - PAUSE_S), False

    def _windows_of(self, left_s: float, *, is_begun: bool) -> Iterator[Coming]:
        """A chunk is never longer than its window, so the next one has at least the next window."""
        windows, last = self._windows, len(self._windows) - 1
        behind = next((n for n, size in enumerate(windows) if size >= self._last_s - 1e-6), last)
        at = max(self._n_chunks, behind + 1) if is_begun else 0
        ahead_s, held_s = (0.0, 0.0) if is_begun else (AHEAD_S, HELD_S)
        back_s = held_s + PAUSE_S  # comes with the last one
        while left_s > 1e-9:
            window_s = min(windows[min(at, last)], left_s)
            at, left_s = at + 1, left_s - window_s
            cost_s = window_s + WINDOW_S * max(0.0, 1.0 - window_s) + ahead_s
            yield cost_s, max(0.0, window_s - held_s + (0.0 if left_s > 1e-9 else back_s))
            ahead_s = held_s = 0.0


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


class Prebuffered:
    """Chunks, held back until the rest can be made in time."""

    def __init__(
        self,
        chunks: Iterable[AudioChunk],
        seconds: float,
        rtf: float | None = None,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._chunks, self._parts, self._clock = chunks, [seconds], clock
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
            seconds = len(chunk.samples) / chunk.rate_hz
            self._prebuffer.note(seconds, now, is_measure=not chunk.is_pause)
            held.append(chunk)
            if is_waiting and now < self._prebuffer.start_at(self._parts):
                continue
            if is_waiting:
                is_waiting, self.waited_s = False, now - self._prebuffer.first_at
            yield from held
            held.clear()
        yield from held
