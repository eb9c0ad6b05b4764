"""Processes that speak and judge, one clip at a time from one queue: none idles before the last.

Each loads the judges and the engines that it needs once. The clips of all tests are queued at the
start, in the order of the tests; a test waits for its own.
"""

from __future__ import annotations

import functools
import multiprocessing
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from nightingale.core import Voice
from nightingale.measure.quality import Clip, Judge, Report, Row
from nightingale.measure.speakers import Embedding
from nightingale.pipeline import Nightingale
from training.work import work

N_PROCESSES = 2

Pending = Callable[[], Report]
Judges = Literal["words", "words and voice", "all"]  # "all": sound too


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


def score(pool: Executor, clips: Iterable[Clip], voices: Mapping[str, Embedding]) -> Pending:
    """Queue clips; the report when it is asked for."""
    rows = [pool.submit(_judged, clip, dict(voices)) for clip in clips]
    return lambda: Report(tuple(row.result() for row in rows))


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
    few = Judge(judge.transcriber, None if judges == "words" else judge.speakers)
    return (judge if judges == "all" else few).score_one(clip, voices)


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
