"""The judge, judged: faults planted in good speech are found by who should find them."""

from __future__ import annotations

import functools
from collections.abc import Callable
from concurrent.futures import Executor

import numpy as np
import pytest
from numpy.typing import NDArray

from nightingale.measure.interval import Interval
from nightingale.measure.quality import Judge, Report
from nightingale.measure.speakers import centroid, similarity
from tests.quality import faults
from tests.quality.conftest import Speech
from tests.quality.pool import score, score_together

pytestmark = pytest.mark.quality

Verdict = Callable[[str], Report]


@pytest.fixture(scope="module")
def verdict(judge: Judge, pool: Executor, speech: Speech) -> Verdict:
    """The report on all clips with one kind of fault; each clip is judged once."""
    voices = judge.enroll(speech.enrolled)
    clips = speech.judged
    following = [*clips[1:], clips[0]]  # another text
    elsewhere = [next(other for other in clips if other.voice != clip.voice) for clip in clips]
    as_spoken = {
        "none": clips,
        "other text": list(map(faults.other_text, clips, following)),
        "other voice": list(map(faults.other_voice, clips, elsewhere)),
    }
    together = score_together(pool, list(as_spoken.values()), voices)
    pending = dict(zip(as_spoken, together, strict=True))
    for fault, spoil in (("dropped frames", faults.dropped_frames), ("noise", faults.noisy)):
        pending[fault] = score(pool, map(spoil, clips), voices)
    pending["half speed"] = score(pool, map(faults.half_speed, clips), voices, "voice")
    return functools.cache(lambda fault: pending[fault]())


def test_good_speech_passes(verdict: Verdict) -> None:
    good = verdict("none")
    assert good.words.value <= 0.1
    assert good.characters.value <= 0.05
    assert 8 <= good.pace.value <= 22
    for row in good.rows:
        assert row.match is not None
        assert row.match.own > (row.match.other or 0) + 0.15, row
        assert row.sound is not None
        assert row.sound > 1.7, row  # a formant synthesizer passes, noise does not


@pytest.mark.parametrize(
    ("fault", "figure", "least"),
    [
        ("dropped frames", "words", 0.3),
        ("dropped frames", "sound", -0.3),
        ("dropped frames", "pace", 8.0),
        ("half speed", "pace", -4.0),
        ("half speed", "own_voice", -0.4),
        ("noise", "words", 0.5),
        ("noise", "sound", -0.5),
        ("noise", "own_voice", -0.4),
        ("other text", "words", 0.6),
        ("other text", "characters", 0.5),
        ("other voice", "own_voice", -0.3),
        ("other voice", "right_voice", -1.0),
    ],
)
def test_a_planted_fault_moves_the_figure(
    verdict: Verdict, fault: str, figure: str, least: float
) -> None:
    """By about half of what was measured when this was written, or more."""
    good: Interval = getattr(verdict("none"), figure)
    bad: Interval = getattr(verdict(fault), figure)
    change = bad.value - good.value
    assert change >= least if least > 0 else change <= least, (good, bad)


@pytest.mark.parametrize(
    ("fault", "figures"),
    [
        ("other text", ["own_voice", "right_voice", "sound"]),
        ("other voice", ["words", "characters", "sound", "pace"]),
    ],
)
def test_a_fault_leaves_the_other_judges_alone(
    verdict: Verdict, fault: str, figures: list[str]
) -> None:
    for figure in figures:
        assert getattr(verdict(fault), figure) == getattr(verdict("none"), figure)


def test_every_clip_with_another_voice_or_text_is_found(verdict: Verdict) -> None:
    for row in verdict("other voice").rows:
        assert row.match is not None
        assert (row.match.other or 0) - row.match.own > 0.15, row
    for row in verdict("other text").rows:
        assert row.words.rate > 0.5, row


def test_silence_and_next_to_nothing_are_judged_without_words(judge: Judge) -> None:
    for n_samples in (0, 1, 2400, 24_000):
        silence = np.zeros(n_samples, np.float32)
        assert judge.transcriber.transcribe(silence, 24_000) == ""
        assert judge.speakers is not None
        assert np.isfinite(judge.speakers.embed(silence, 24_000)).all()
        assert judge.sound is not None
        assert judge.sound.rate(silence, 24_000) < 2


def test_the_same_clip_is_heard_in_the_same_way_twice(judge: Judge, speech: Speech) -> None:
    noise = faults.noisy(speech.judged[0]).samples  # where sampling would show
    assert judge.speakers is not None
    assert judge.sound is not None
    assert len({judge.transcriber.transcribe(noise, 24_000) for _ in range(2)}) == 1
    assert len({judge.speakers.embed(noise, 24_000).tobytes() for _ in range(2)}) == 1
    assert len({judge.sound.rate(noise, 24_000) for _ in range(2)}) == 1


def hum() -> NDArray[np.float32]:
    """Three seconds at 16 kHz, the same everywhere."""
    time_s = np.arange(3 * 16_000) / 16_000
    phase = 2 * np.pi * np.cumsum(140 + 30 * np.sin(2 * np.pi * 0.7 * time_s)) / 16_000
    harmonics = sum(np.sin(phase * harmonic) / harmonic for harmonic in range(1, 12))
    syllables = np.clip(np.sin(5 * np.pi * time_s), 0, 1)
    return np.asarray(0.15 * harmonics * syllables, np.float32)


# What SpeechBrain 1.1.2 and distillmos 0.9.1 themselves say of the hum.
ECAPA_OF_HUM = (
    17.538,
    32.388,
    19.622,
    32.101,
    25.661,
    -5.016,
    -28.231,
    40.340,
    -19.405,
    37.507,
    35.719,
    67.685,
)
SOUND_OF_HUM = 1.1380819


def test_the_networks_are_those_of_the_packages_they_come_from(judge: Judge) -> None:
    assert judge.speakers is not None
    embedding = judge.speakers.embed(hum(), 16_000)
    theirs = centroid([np.array(ECAPA_OF_HUM, np.float32)])
    assert similarity(centroid([embedding[: len(theirs)]]), theirs) > 0.9999
    assert judge.sound is not None
    assert judge.sound.rate(hum(), 16_000) == pytest.approx(SOUND_OF_HUM, abs=1e-3)
