"""The model that ships with the package, judged by ears that are not its own.

A sample of what `python -m training.evaluate` measures on all sentences: enough to notice that it
got worse, and small enough to be listened to on every change.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from pathlib import Path

import pytest

from nightingale.audio import files
from nightingale.core import SAMPLES_PER_SECOND
from nightingale.measure import texts
from nightingale.measure.quality import Clip, Judge, Report
from nightingale.measure.speakers import Embedding
from tests.quality.pool import Judges, Task, clone, speak_and_score

pytestmark = pytest.mark.quality

VOICES = Path(__file__).parent / "voices"  # spoken by the teachers; af_sarah was never learned from
OWN_VOICE = "heart"
CLONED = ("am_michael", "bf_emma", "af_sarah")
N_SENTENCES, N_SHORT, N_CLONED = 20, 20, 5  # the last of each voice

Said = Callable[[str], Report]


@pytest.fixture(scope="module")
def voices(judge: Judge) -> dict[str, Embedding]:
    def known(voice: str) -> Clip:
        recording = VOICES / f"{voice}_known.ogg"
        return Clip(files.read(recording, SAMPLES_PER_SECOND), "", voice)

    return judge.enroll(known(voice) for voice in (OWN_VOICE, *CLONED))


@pytest.fixture(scope="module")
def said(pool: Executor, voices: dict[str, Embedding]) -> Said:
    """What the judge says of each way to speak; each clip is heard once."""
    sentences = texts.read("held_out", N_SENTENCES)
    voices_made = {name: clone(pool, VOICES / f"{name}_cloned.ogg") for name in CLONED}

    def own(few: Sequence[str], decoder: str, judges: Judges = "words") -> list[Task]:
        return [
            Task(text, seed, decoder, OWN_VOICE, judges=judges) for seed, text in enumerate(few)
        ]

    paragraphs = [" ".join(sentences[at : at + 5]) for at in (0, 5, 10)]
    ways = {
        "standard": own(sentences, "standard", "all"),
        "meanflow": own(sentences, "meanflow"),
        "short": own(texts.read("short", N_SHORT), "standard"),
        "paragraphs": own(paragraphs, "standard"),
    }
    pending = {way: speak_and_score(pool, tasks, voices) for way, tasks in ways.items()}
    clones = [
        Task(text, seed, "standard", name, made.result(), "voice")
        for name, made in voices_made.items()
        for seed, text in enumerate(sentences[:N_CLONED])
    ]
    pending["clones"] = speak_and_score(pool, clones, voices)
    return functools.cache(lambda way: pending[way]())


def test_its_words_are_understood(said: Said) -> None:
    assert said("standard").words.value <= 0.1, said("standard").worst(5)


def test_two_steps_are_nearly_as_clear_as_ten(said: Said) -> None:
    assert said("meanflow").words.value <= said("standard").words.value + 0.04
    assert said("meanflow").words.value <= 0.12, said("meanflow").worst(5)


def test_short_texts_are_understood(said: Said) -> None:
    assert said("short").words.value <= 0.25, said("short").worst(5)


def test_paragraphs_are_understood(said: Said) -> None:
    assert said("paragraphs").words.value < 0.15  # as one piece it was 0.7


def test_it_sounds_nearly_as_good_as_its_teacher(said: Said) -> None:
    sound = said("standard").sound
    assert sound is not None
    assert sound.value > 3.8


def test_it_speaks_at_a_usual_pace(said: Said) -> None:
    assert 10 <= said("standard").pace.value <= 18


def test_it_sounds_like_itself(said: Said) -> None:
    right = said("standard").right_voice
    assert right is not None
    assert right.value >= 0.9, said("standard").worst(5, "voice")


def test_clones_sound_like_who_they_were_made_from_more_often_than_not(said: Said) -> None:
    right = said("clones").right_voice  # of four; chance level: a quarter
    assert right is not None
    assert right.value >= 0.5, said("clones").worst(5, "voice")
