"""Which language a text is in: of those that a model speaks, with a confidence, in bounded time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nightingale.text import detection
from nightingale.text.detection import (
    MAX_ARRIVING,
    DetectedLanguage,
    arriving_sample,
    beginning,
    detect_language,
)
from nightingale.text.languages import LANGUAGES
from nightingale.text.split import CUT

SPOKEN = tuple(LANGUAGES)
CASES = {
    "de": "Guten Tag, wie geht es dir heute?",
    "en": "Good morning, how are you today?",
    "ja": "今日はとても良い天気ですね。",
    "ru": "Сегодня очень хорошая погода.",
    "sw": "Habari ya asubuhi, rafiki yangu.",
}


@pytest.mark.parametrize("code", CASES)
def test_language_detection_finds_it(code: str) -> None:
    found = detect_language(CASES[code], SPOKEN)
    assert found.code == code
    assert 0.5 < found.confidence <= 1.0
    assert str(found) == f"{code}; confidence={found.confidence:.2f}"


def test_language_detection_is_restricted_to_what_the_model_speaks() -> None:
    """A German text for a model of English: English, and no confidence in it."""
    found = detect_language(CASES["de"], ("en",))
    assert (found.code, found.written) == ("en", "de")
    assert found.confidence < 0.1
    assert str(found).endswith("; written=de")
    assert found.fields["language_written"] == "de"
    assert "the text seems to be German (de), which this model does not" in found.description
    english = detect_language(CASES["en"], ("en",))
    assert english.confidence > 0.9
    assert english.written is None
    assert "detected with confidence" in english.description


@pytest.mark.parametrize("text", ["", "12:30", "🎉 !", "€ 5"])
def test_text_without_letters_is_the_fallback_with_confidence_0(text: str) -> None:
    assert detect_language(text, SPOKEN, "de") == DetectedLanguage("de", 0.0)
    assert detect_language(text, ("fr", "en")) == DetectedLanguage("fr", 0.0)


@settings(max_examples=40, deadline=None)
@given(st.text(max_size=300))
def test_language_detection_answers_any_text_the_same_twice(text: str) -> None:
    found = detect_language(text, SPOKEN, "en")
    assert found.code in SPOKEN
    assert 0.0 <= found.confidence <= 1.0
    assert found == detect_language(text, SPOKEN, "en")


def test_language_detection_of_a_megabyte_looks_at_its_beginning() -> None:
    long = CASES["de"] * 40_000
    detect_language("Hello.", SPOKEN)  # loaded
    begun = time.perf_counter()
    assert detect_language(long, SPOKEN).code == "de"
    assert time.perf_counter() - begun < 0.5
    assert detect_language(long, SPOKEN) == detect_language(
        long[: detection.MAX_CHARACTERS], SPOKEN
    )


@settings(max_examples=40, deadline=None)
@given(st.text("ab " + CUT, max_size=200), st.lists(st.integers(0, 200), max_size=8))
def test_the_sample_of_arriving_text_depends_on_its_characters_alone(
    text: str, cuts: list[int]
) -> None:
    edges = [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]

    def handed() -> Iterator[str]:
        yield from (text[start:end] for start, end in pairwise(edges))

    pieces = handed()
    *waited, held = beginning(pieces)
    assert held is not None
    assert not any(waited)
    assert arriving_sample(held) == text.split(CUT, 1)[0][:MAX_ARRIVING]
    assert held + "".join(pieces) == text
