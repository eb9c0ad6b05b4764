"""Processes that speak and judge, one clip at a time from one queue: none idles before the last.

Each loads the judges and the engines that it needs once. The clips of all tests are queued at the
start, in the order of the tests; a test waits for its own.
"""

from __future__ import annotations

import functools
import multiprocessing
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from nightingale.audio.files import Wave
from nightingale.core import Voice
from nightingale.measure.quality import Clip, Judge, Report, Row
from nightingale.measure.speakers import Embedding, match
from nightingale.measure.words import character_edits, word_edits
from nightingale.pipeline import Nightingale
from training.work import work

N_PROCESSES = 2

Pending = Callable[[], Report]
Judges = Literal["words", "voice", "all"]  # "all": sound too


@dataclass(frozen=True, slots=True)
class Task:
    """What the bundled model is to say, and who judges it."""

    text: str
    seed: int
    decoder: str
    name: str  # of the voice
    voice: Voice | None = None  # None: the model's own
    judges: Judges = "all"


@contextmanager
def processes() -> Iterator[Executor]:
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(N_PROCESSES, context, torch.set_num_threads, (1,))
    try:
        yield pool
    finally:
        pool.shutdown(cancel_futures=True)


def score(
    pool: Executor,
    clips: Iterable[Clip],
    voices: Mapping[str, Embedding],
    judges: Judges = "all",
) -> Pending:
    """Queue clips; the report when it is asked for."""
    rows = [pool.submit(_judged, clip, dict(voices), judges) for clip in clips]
    return lambda: Report(tuple(row.result() for row in rows))


def score_together(
    pool: Executor, sets: Sequence[Sequence[Clip]], voices: Mapping[str, Embedding]
) -> list[Pending]:
    """A report for each set; the clips at one place of all sets have the same samples."""
    rows = [
        pool.submit(_judged_together, list(clips), dict(voices))
        for clips in zip(*sets, strict=True)
    ]

    def report(number: int) -> Report:
        return Report(tuple(row.result()[number] for row in rows))

    return [functools.partial(report, number) for number in range(len(sets))]


def speak_and_score(
    pool: Executor, tasks: Iterable[Task], voices: Mapping[str, Embedding]
) -> Pending:
    rows = [pool.submit(_spoken, task, dict(voices)) for task in tasks]
    return lambda: Report(tuple(row.result() for row in rows))


def clone(pool: Executor, recording: Path) -> Future[Voice]:
    """Takes as long as several clips: once for both processes."""
    return pool.submit(_cloned, recording)


def _judged(clip: Clip, voices: dict[str, Embedding], judges: Judges = "all") -> Row:
    judge = _judge()
    if judges == "voice":  # half of the time would go to the words
        assert judge.speakers is not None
        matched = match(judge.speakers.embed(clip.samples, clip.rate_hz), clip.voice, voices)
        edits = word_edits(clip.text, ""), character_edits(clip.text, "")
        return Row(clip.voice, clip.text, "", clip.seconds, *edits, matched, sound=None)
    return (judge if judges == "all" else Judge(judge.transcriber)).score_one(clip, voices)


def _judged_together(clips: list[Clip], voices: dict[str, Embedding]) -> list[Row]:
    """Clips of the same samples: those are heard once."""
    judge = _judge()
    parts: list[Any] = [_Once(part) for part in (judge.transcriber, judge.speakers, judge.sound)]
    return [Judge(*parts).score_one(clip, voices) for clip in clips]


class _Once:
    """A judge whose answer for the same samples, the very same array, is the one it gave before."""

    def __init__(self, judge: Any) -> None:
        self._judge = judge
        self._answers: dict[tuple[str, int, int], Any] = {}

    def __getattr__(self, name: str) -> Any:
        def answer(samples: Wave, rate_hz: int) -> Any:
            key = name, id(samples), rate_hz
            if key not in self._answers:
                self._answers[key] = getattr(self._judge, name)(samples, rate_hz)
            return self._answers[key]

        return answer


def _spoken(task: Task, voices: dict[str, Embedding]) -> Row:
    audio = _engine(task.decoder).say(task.text, task.voice, seed=task.seed)
    return _judged(Clip(audio.samples, task.text, task.name), voices, task.judges)


@functools.cache
def _judge() -> Judge:
    return Judge.load(work() / "assets")


@functools.cache
def _engine(decoder: str) -> Nightingale:
    home = Path(tempfile.gettempdir()) / "nightingale-quality"
    return Nightingale.load("fledgling", home=home, device="cpu", decoder=decoder)


def _cloned(recording: Path) -> Voice:
    return _engine("standard").clone(recording)
