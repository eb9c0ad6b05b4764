"""What is kept of a teacher's clip, and how a voice's files survive a crash."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from training.clips import RATE, BadClipError, Corpus, CorpusError, count_phonemes, tidy


def tone(seconds: float, level: float = 0.3) -> np.ndarray:
    phase = np.arange(round(seconds * RATE), dtype=np.float32) * np.float32(0.05)
    return np.asarray(level * np.sin(phase), np.float32)


def silence(seconds: float) -> np.ndarray:
    return np.zeros(round(seconds * RATE), np.float32)


@pytest.mark.parametrize("around", [0.0, 0.05, 0.5])
def test_a_clip_has_a_little_silence_on_both_sides_whatever_the_teacher_left(around: float) -> None:
    clip = tidy(np.concatenate([silence(around), tone(1.0), silence(around)]), 12)
    loud = np.flatnonzero(np.abs(clip) > 1000)
    assert loud[0] / RATE == pytest.approx(0.1, abs=0.011)
    assert (len(clip) - loud[-1]) / RATE == pytest.approx(0.15, abs=0.011)


def test_a_clip_has_no_dc_and_stays_below_the_peak() -> None:
    clip = tidy(tone(1.0, level=1.5) + np.float32(0.2), 12) / 32767
    assert abs(clip.mean()) < 0.01
    assert np.abs(clip).max() == pytest.approx(0.95, abs=1e-3)
    quiet = tidy(tone(1.0, level=0.1), 12) / 32767
    assert np.abs(quiet).max() == pytest.approx(0.1, abs=0.01), "quiet clips are not made louder"


@pytest.mark.parametrize(
    ("samples", "n_phonemes", "reason"),
    [
        (tone(1.0) * np.float32("nan"), 12, "broken"),
        (silence(0), 12, "broken"),
        (silence(1.0), 12, "silent"),
        (tone(4.0), 12, "slow"),
        (tone(0.3), 12, "fast"),
        (tone(12.0), 150, "long"),
    ],
)
def test_an_odd_clip_is_refused(samples: np.ndarray, n_phonemes: int, reason: str) -> None:
    with pytest.raises(BadClipError, match=reason):
        tidy(samples, n_phonemes)


def test_stress_marks_and_points_are_not_sounds() -> None:
    assert count_phonemes("həlˈO, ðˈɛɹ.") == 7


def add(corpus: Corpus, name: str, n_samples: int) -> None:
    corpus.add(name, "Hi.", "hˈI.", np.full(n_samples, len(name), np.int16), "train")


def test_a_corpus_goes_on_where_it_ended_and_drops_a_torn_tail(tmp_path: Path) -> None:
    add(Corpus(tmp_path, "bird"), "a", 10)
    with (tmp_path / "bird.pcm").open("ab") as pcm:
        pcm.write(b"torn!")
    with (tmp_path / "bird.jsonl").open("a") as lines:
        lines.write('{"id": "b", "te')
    corpus = Corpus(tmp_path, "bird")
    assert [u.id for u in corpus.utterances] == ["a"]
    add(corpus, "cc", 5)
    again = Corpus(tmp_path, "bird")
    assert [(u.id, u.start, u.n_samples) for u in again.utterances] == [("a", 0, 10), ("cc", 10, 5)]
    samples = np.fromfile(tmp_path / "bird.pcm", "<i2")
    assert samples.tolist() == [1] * 10 + [2] * 5


def test_lost_samples_are_not_made_up(tmp_path: Path) -> None:
    add(Corpus(tmp_path, "bird"), "a", 10)
    (tmp_path / "bird.pcm").write_bytes(b"1234")
    with pytest.raises(CorpusError, match=r"bird\.pcm has 4 bytes.*20"):
        Corpus(tmp_path, "bird")
