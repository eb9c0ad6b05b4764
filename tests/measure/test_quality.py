"""Reports: figures over a set, the worst clips, JSON and tables."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest
from rich.console import Console

from nightingale.errors import AudioError
from nightingale.measure.quality import Clip, Report, Row
from nightingale.measure.report import compare, worst
from nightingale.measure.speakers import Match
from nightingale.measure.words import Edits, character_edits, word_edits


def row(text: str, heard: str, match: Match | None = None, sound: float | None = None) -> Row:
    edits = word_edits(text, heard), character_edits(text, heard)
    return Row("ann", text, heard, 2.0, *edits, match, sound)


GOOD = row("the boats come home", "the boats come home", Match(0.9, 0.4, "ben"), 4.5)
WRONG_WORDS = row("the boats come home", "a goat come home", Match(0.8, 0.5, "ben"), 4.0)
WRONG_VOICE = row("we know", "we know", Match(0.3, 0.7, "cat"), 3.5)
BAD_SOUND = row("we know", "we know", Match(0.8, 0.5, "ben"), 1.5)
REPORT = Report((GOOD, WRONG_WORDS, WRONG_VOICE, BAD_SOUND))


def test_figures_are_those_of_the_whole_set() -> None:
    assert REPORT.words.value == pytest.approx(2 / 12)
    assert REPORT.pace.value == pytest.approx((16 + 16 + 6 + 6) / 8)
    means = REPORT.own_voice, REPORT.other_voice, REPORT.right_voice, REPORT.sound
    assert [mean and mean.value for mean in means] == pytest.approx([0.7, 0.525, 0.75, 3.375])


def test_the_worst_clips_of_each_judge_come_first() -> None:
    assert REPORT.worst(1, "words") == [WRONG_WORDS]
    assert REPORT.worst(1, "voice") == [WRONG_VOICE]
    assert REPORT.worst(2, "sound") == [BAD_SOUND, WRONG_VOICE]


def test_a_report_survives_json() -> None:
    facts = json.loads(json.dumps(REPORT.facts(), allow_nan=False))
    assert facts["n_clips"] == 4
    assert facts["words"]["low"] <= facts["words"]["value"] <= facts["words"]["high"]
    assert facts["word_edits"] == {
        "n_reference": 12, "substituted": 2, "dropped": 0, "added": 0
    }  # fmt: skip
    assert facts["clips"][1]["heard"] == "a goat come home"
    assert facts["clips"][1]["pace"] == 8
    assert facts["clips"][2]["match"] == {"own": 0.3, "other": 0.7, "other_voice": "cat"}


def test_judges_that_were_not_asked_have_no_figures() -> None:
    words_only = Report((row("we know", "we no"),))
    assert words_only.sound is None
    assert words_only.right_voice is None
    assert words_only.facts()["sound"] is None
    assert words_only.worst(1, "voice") == list(words_only.rows)


def shown(table: object) -> str:
    console = Console(file=io.StringIO(), width=200)
    console.print(table)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_systems_stand_side_by_side() -> None:
    text = shown(compare({"ours": REPORT, "theirs": Report((row("we know", "we know"),))}))
    assert "ours" in text
    assert "theirs" in text
    assert "16.7% (" in text
    assert "0.0% (0.0% to 0.0%)" in text
    assert "speaker similarity" not in shown(compare({"x": Report((row("a cat", "a cat"),))}))


def test_the_worst_clips_are_shown_with_what_was_heard() -> None:
    text = shown(worst(REPORT, 1))
    assert "a goat come home" in text
    assert "0.80 / 0.50" in text
    assert "we know" not in text


@pytest.mark.parametrize("samples", [np.array([0.0, np.nan]), np.zeros((2, 5))])
def test_what_is_no_sound_is_refused(samples: np.ndarray) -> None:
    with pytest.raises(AudioError, match="of finite numbers"):
        Clip(samples.astype(np.float32), "we know", "ann")


def test_a_clip_knows_how_long_it_is() -> None:
    assert Clip(np.zeros(12_000, np.float32), "we know", "ann").seconds == 0.5
    assert Row("ann", "a", "", 0.0, Edits(1), Edits(1), None, None).pace > 100
