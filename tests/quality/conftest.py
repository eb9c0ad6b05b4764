"""The judges, and speech for them to judge. A judge that is absent is a failure, never a skip."""

from __future__ import annotations

import io
import json
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import Executor
from dataclasses import dataclass
from itertools import islice

import numpy as np
import pytest
import soundfile

from nightingale.audio.files import resample
from nightingale.core import SAMPLES_PER_SECOND
from nightingale.errors import NightingaleError
from nightingale.measure.quality import Clip, Judge
from tests.quality.pool import processes
from training.work import work

N_ENROLLED, N_JUDGED = 3, 2  # clips of each voice
MIN_LETTERS, MAX_LETTERS = 40, 90  # of a text from the corpus

TEACHER_VOICES = ("heart", "am_michael", "bf_emma")
PROGRAM_VOICES = ("en-us", "en-us+f2", "en-us+Annie")
TEXTS = (
    "The old fisherman walked slowly along the river and watched the boats come home.",
    "Please close the window before you leave, because it will rain tonight.",
    "My sister bought fresh bread and cheese at the market this morning.",
    "The children were playing in the garden when the storm began.",
    "He opened the letter, read it twice, and smiled.",
)
assert len(TEXTS) == N_ENROLLED + N_JUDGED


@dataclass(frozen=True, slots=True)
class Speech:
    """Good speech of two voices or more."""

    enrolled: list[Clip]  # what the voices are known by
    judged: list[Clip]


@pytest.fixture(scope="session")
def judge() -> Judge:
    try:
        return Judge.load(work() / "assets")
    except NightingaleError as error:  # its message says what to do
        pytest.fail(str(error))


@pytest.fixture(scope="session")
def pool() -> Iterator[Executor]:
    with processes() as executor:
        yield executor


@pytest.fixture(scope="session")
def speech() -> Speech:
    """The teachers', where it has been made; otherwise a program's."""
    n_clips = N_ENROLLED + N_JUDGED
    voices = [list(islice(corpus_clips(voice), n_clips)) for voice in TEACHER_VOICES]
    if any(len(clips) < n_clips for clips in voices):
        voices = [program_clips(voice) for voice in PROGRAM_VOICES]
    return Speech(
        [clip for clips in voices for clip in clips[:N_ENROLLED]],
        [clip for clips in voices for clip in clips[N_ENROLLED:]],
    )


def program_clips(voice: str) -> list[Clip]:
    """The texts as espeak-ng says them."""
    if not shutil.which("espeak-ng"):
        pytest.fail("espeak-ng is not there; install it with scripts/programs")
    clips = []
    for text in TEXTS:
        command = ["espeak-ng", "-v", voice, "--stdout", text]
        said = subprocess.run(command, capture_output=True, check=True).stdout
        samples, rate_hz = soundfile.read(io.BytesIO(said), dtype="float32")
        clips.append(Clip(resample(samples, rate_hz, SAMPLES_PER_SECOND), text, voice))
    return clips


def corpus_clips(voice: str) -> Iterator[Clip]:
    """The sentences of the corpus that are neither short nor long, from the first on."""
    rows = work() / "corpus" / f"{voice}.jsonl"
    if not rows.exists():
        return
    sound = rows.with_suffix(".pcm")
    with rows.open(encoding="utf-8") as lines:
        for row in map(json.loads, lines):
            if MIN_LETTERS <= len(row["text"]) <= MAX_LETTERS:
                pcm = np.fromfile(sound, np.int16, row["n_samples"], offset=2 * row["start"])
                yield Clip((pcm / 32768).astype(np.float32), row["text"], voice)
