"""A listener starts when the rest can be made in time, and not later."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest

from nightingale.core import WINDOW_SIZES, AudioChunk
from nightingale.prebuffer import (
    JITTER,
    Prebuffer,
    Prebuffered,
    RecentFactor,
    expected_seconds,
    part_seconds,
    prebuffer_s,
    window_seconds,
)

WINDOWS = window_seconds(WINDOW_SIZES)
Chunks = list[tuple[float, float]]  # when each is there, and its length


def schedule(rtf: float, seconds: float, rng: random.Random, first_s: float = 0.06) -> Chunks:
    """Windows of the live plans; the sound of the first is mostly held back by the vocoder."""
    chunks, left_s = [(1.0, min(first_s, seconds))], seconds - first_s
    while left_s > 1e-9:
        length_s = min(WINDOWS[min(len(chunks), len(WINDOWS) - 1)], left_s)
        took_s = rtf * length_s * rng.uniform(1 - JITTER, 1 + JITTER)
        chunks.append((chunks[-1][0] + took_s, length_s))
        left_s -= length_s
    return chunks


def start(
    chunks: Chunks, prebuffer: Prebuffer, parts: list[float], cap_s: float = math.inf
) -> float:
    """When playing starts."""
    for (at, length_s), (next_at, _) in pairwise([*chunks, (math.inf, 0.0)]):
        prebuffer.note(length_s, at)
        start_at = min(prebuffer.start_at(parts), prebuffer.first_at + cap_s)
        if start_at <= next_at:
            return min(start_at, chunks[-1][0])
    raise AssertionError("it never starts")


def gaps(chunks: Chunks, start_at: float) -> list[float]:
    """Where playing stops, and for how long."""
    found, dry_at = [], start_at
    for at, length_s in chunks:
        if at > dry_at + 1e-9:
            found.append(at - dry_at)
        dry_at = max(dry_at, at) + length_s
    return found


@pytest.mark.slow
@pytest.mark.parametrize("rtf", [0.2, 0.5, 0.8, 0.9, 0.95, 0.99])
def test_no_gap_below_real_time(rtf: float) -> None:
    """With a factor that is known, 600 schedules with jitter for each."""
    rng, n_naive = random.Random(1), 0
    for _ in range(600):
        seconds = rng.uniform(0.5, 60.0)
        chunks = schedule(rtf, seconds, rng, first_s=rng.choice((0.06, 0.32, 0.44)))
        assert gaps(chunks, start(chunks, Prebuffer(rtf), [seconds])) == []
        n_naive += bool(gaps(chunks, chunks[0][0]))
    assert rtf < 0.9 or n_naive > 540  # starting with the first chunk stutters


@pytest.mark.parametrize("rtf", [1.05, 1.2, 1.5, 2.0])
def test_gaps_above_real_time_only_where_the_cap_bites(rtf: float) -> None:
    rng, n_capped = random.Random(2), 0
    for _ in range(300):
        seconds = rng.uniform(0.5, 60.0)
        chunks = schedule(rtf, seconds, rng)
        start_at = start(chunks, Prebuffer(rtf), [seconds], cap_s=10.0)
        assert start_at <= chunks[0][0] + 10.0 + 1e-9
        is_capped = start_at > chunks[0][0] + 10.0 - 1e-9
        assert is_capped or gaps(chunks, start_at) == []
        n_capped += is_capped and bool(gaps(chunks, start_at))
    assert rtf < 1.5 or n_capped > 0  # it does bite


@pytest.mark.parametrize("rtf", [0.05, 0.2, 0.4, 0.5])
def test_who_is_fast_starts_with_the_first_audible_chunk(rtf: float) -> None:
    """0.44 s: the second window, without the silence in front."""
    chunks = schedule(rtf, 10.0, random.Random(3), first_s=0.44)
    assert start(chunks, Prebuffer(rtf), [10.0]) == chunks[0][0]


def test_who_knows_nothing_waits_for_one_more() -> None:
    chunks = schedule(0.2, 10.0, random.Random(4), first_s=0.44)
    assert start(chunks, Prebuffer(None), [10.0]) == chunks[1][0]


@pytest.mark.parametrize(("known", "true"), [(2.0, 0.2), (1.3, 0.5)])
def test_a_machine_that_has_become_faster_is_believed_soon(known: float, true: float) -> None:
    chunks = schedule(true, 20.0, random.Random(5))
    assert start(chunks, Prebuffer(known), [20.0]) < chunks[0][0] + 3.0


def test_a_machine_that_has_become_slower_is_noticed_while_waiting() -> None:
    chunks = schedule(2.0, 20.0, random.Random(6))
    prebuffer = Prebuffer(1.1)
    assert gaps(chunks, start(chunks, prebuffer, [20.0])) == []
    assert prebuffer.rtf == pytest.approx(2.0, rel=0.3)


def test_what_jitter_explains_changes_nothing() -> None:
    prebuffer = Prebuffer(0.9)
    for at, length_s in schedule(0.9, 30.0, random.Random(7)):
        prebuffer.note(length_s, at)
    assert prebuffer.rtf == 0.9


def test_time_without_text_and_after_a_loss_is_no_measure() -> None:
    prebuffer = Prebuffer(None)
    prebuffer.note(0.5, 1.0)
    assert prebuffer.note(0.5, 4.0, idle_s=2.9) == pytest.approx(0.1)
    assert prebuffer.note(0.5, 9.0, is_measure=False) is None
    assert prebuffer.rtf == pytest.approx(0.2)


def test_the_lead_is_for_the_chunk_that_would_be_latest() -> None:
    second, more = (1.0, 1.0), 1 + JITTER
    assert prebuffer_s(0.0, [second]) == 0
    assert prebuffer_s(0.5, [second]) == pytest.approx(0.5 * more)
    assert prebuffer_s(0.5, [(0.1, 0.1), second]) == pytest.approx(0.55 * more - 0.1)
    assert prebuffer_s(0.5, [second] * 100) == prebuffer_s(0.5, [second])
    assert prebuffer_s(0.5, [(0.6, 0.0), second]) == pytest.approx(0.8 * more)  # a part starts
    assert prebuffer_s(2.0, [second] * 4) == pytest.approx(8 * more - 3)


def test_a_plan_without_windows_gives_whole_parts() -> None:
    for prebuffer in (Prebuffer(0.5, window_seconds(())), Prebuffer(0.5)):
        prebuffer.note(3.0, 0.0)
        assert prebuffer.start_at([2.5, 3.0]) == 0  # another three seconds take half the time
        assert prebuffer.start_at([2.5, 10.0]) > 2.0


def test_the_length_of_a_text_and_of_its_parts() -> None:
    assert expected_seconds("x" * 150) == pytest.approx(10)
    assert window_seconds(WINDOW_SIZES, 2.0) == tuple(size / 2 for size in WINDOWS)
    assert expected_seconds("你好" * 5) == pytest.approx(2)
    assert expected_seconds("1234567890") == pytest.approx(4)  # it is said in words
    two = "This is a sentence. This is another one."
    assert part_seconds(two) == [expected_seconds(two)]
    assert len(part_seconds(two, is_single=True)) == 2
    written = {"is_arriving": True, "is_open": True}
    assert part_seconds("This is a start without an end", **written) == []
    assert part_seconds("Hello. And this is not ove", **written) == [expected_seconds("Hello.")]
    assert part_seconds("flushed\fand", **written) == [expected_seconds("flushed")]
    assert len(part_seconds("flushed\fand", is_arriving=True)) == 2
    long = "x" * 24 + ". "
    assert sum(part_seconds(long * 500)) == pytest.approx(expected_seconds(long * 500), rel=0.05)


def sentences(rng: random.Random, n: int) -> tuple[Chunks, list[float]]:
    """As the live plans make them, at a speed of 1: a window costs as much as 0.4 s of sound more
    than its length; each part waits to look ahead, and gives what it held back at its end."""
    chunks: Chunks = []
    parts, now = [], 1.0
    for _ in range(n):
        left_s = rng.uniform(0.8, 8.0)
        parts.append(left_s * rng.uniform(0.9, 1.2))
        ahead_s, held_s = 0.12, 0.36
        for window_s in (0.8, *WINDOWS[2:], *[1.0] * 9):
            length_s, left_s = min(window_s, left_s), left_s - window_s
            took_s = (length_s + 0.4 + ahead_s) * rng.uniform(1 - JITTER, 1 + JITTER)
            now += took_s if chunks else 0.0
            chunks.append((now, length_s - held_s + (0.26 if left_s <= 0 else 0.0)))
            ahead_s = held_s = 0.0
            if left_s <= 0:
                break
        chunks.append((now, 0.25))  # a pause costs nothing
    return chunks, parts


@pytest.mark.parametrize("rtf", [0.5, 0.8, 0.9, 0.99, 1.2])
def test_no_gap_between_sentences(rtf: float) -> None:
    """Short windows and the beginnings of sentences are slower than the rest; 0.05 s is less than
    what every player buffers."""
    rng = random.Random(8)
    made = [sentences(rng, rng.randint(1, 10)) for _ in range(150)]
    busy_s = sum(chunks[-1][0] - chunks[0][0] for chunks, _ in made)
    usual = busy_s / sum(length_s for chunks, _ in made for _, length_s in chunks[1:])
    for chunks, parts in made:
        slowed = [(1 + (at - 1) * rtf / usual, length_s) for at, length_s in chunks]
        assert [
            gap for gap in gaps(slowed, start(slowed, Prebuffer(rtf), parts)) if gap > 0.05
        ] == []


def test_the_recent_factor_is_kept_for_each_number_of_streams() -> None:
    recent = RecentFactor()
    assert recent.at(1) is None
    recent.note(1, 0.2, 1.0)
    assert recent.at(1) == pytest.approx(0.2)
    assert recent.at(3) == pytest.approx(0.6)  # they share one model
    recent.note(4, 0.5, 1.0)
    assert recent.at(4) == pytest.approx(0.5)
    assert recent.at(3) == pytest.approx(0.375)
    for _ in range(200):
        recent.note(1, 0.9, 1.0)
    assert recent.at(1) == pytest.approx(0.9, rel=0.01)


class Studio:
    """Makes `n` chunks of half a second; each takes `rtf` times as long, the first a second."""

    def __init__(self, rtf: float, n: int = 20) -> None:
        self.rtf, self.n, self.now = rtf, n, 0.0

    def chunks(self) -> Iterator[AudioChunk]:
        for number in range(self.n):
            self.now += 1.0 if number == 0 else 0.5 * self.rtf
            yield AudioChunk(np.full(12_000, number, np.float32))


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("rtf", [0.2, 0.5, 0.95, 1.2, 2.0, 5.0])
def test_paced_chunks_are_all_there_and_without_gaps(rtf: float, known: bool) -> None:
    studio = Studio(rtf)
    paced = Prebuffered(
        studio.chunks(), studio.n / 2, rtf if known else None, clock=lambda: studio.now
    )
    given = [(studio.now, int(chunk.samples[0])) for chunk in paced]
    assert [number for _, number in given] == list(range(studio.n))
    assert gaps([(at, 0.5) for at, _ in given], given[0][0]) == []
    waited_s = given[0][0] - 1.0
    assert paced.waited_s == waited_s
    all_s = rtf * (studio.n - 1) / 2
    at_most = all_s * 0.95 if rtf > 0.5 else 0.0 if known else 0.5 * rtf
    assert waited_s <= at_most + 1e-9


def test_silence_between_parts_is_no_measure_of_speed() -> None:
    """Half a second of work for each second of speech; then three seconds that cost nothing."""
    now = 0.0

    def chunks() -> Iterator[AudioChunk]:
        nonlocal now
        for _ in range(5):
            now += 0.5
            yield AudioChunk(np.ones(24_000, np.float32))
            yield AudioChunk(np.zeros(72_000, np.float32), is_pause=True)

    paced = Prebuffered(chunks(), 20.0, clock=lambda: now)
    assert sum(len(chunk.samples) for chunk in paced) == 5 * 96_000
    assert paced.rtf == pytest.approx(0.5)
    assert paced.made_s == pytest.approx(20.0)
