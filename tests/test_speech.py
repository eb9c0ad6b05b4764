"""Words of an utterance, and when they are said."""

from __future__ import annotations

import pytest

from nightingale.core import Word
from nightingale.speech import SpeechState, SpeechStream
from nightingale.text.split import TextPart
from nightingale.text.structure import Break
from nightingale.text.words import Span, rest, spans

SPACE = 2


def test_words_are_found_between_spaces() -> None:
    assert spans(TextPart("Go home, Anna."), [255, 9, 9, SPACE, 9, 9, 9, SPACE, 9, 0], SPACE) == [
        Span("Go", 1),
        Span("home,", 4),
        Span("Anna.", 8),
    ]


def test_two_spaces_part_words_as_one_does() -> None:
    assert spans(TextPart("Go; home"), [255, 9, 9, SPACE, SPACE, 9, 0], SPACE) == [
        Span("Go;", 1),
        Span("home", 5),
    ]


def test_words_that_cannot_be_told_apart_stay_together() -> None:
    ids = [255, 9, SPACE, 9, 0]
    assert spans(TextPart("At 21 h"), ids, SPACE) == [Span("At 21 h", 0, 3)]
    assert spans(TextPart("Go home"), ids, None) == [Span("Go home", 0, 2)]


def test_words_of_a_figure_are_timed_and_left_as_it_is_written() -> None:
    part = TextPart(
        "Pay twelve euros fifty now.", labels=(("Pay", 1), ("12,50 EUR", 3), ("now.", 1))
    )
    ids = [255, 9, SPACE, 9, 9, SPACE, 9, SPACE, 9, SPACE, 9, 0]
    words = spans(part, ids, SPACE)
    assert words == [Span("Pay", 1), Span("12,50 EUR", 3, 3), Span("now.", 10)]
    left = rest(part, words, 8)
    assert left is not None
    assert left.text == "twelve euros fifty now."
    assert left.written == "12,50 EUR now."


def test_what_is_left_begins_with_a_whole_word() -> None:
    words = [Span("Go", 1), Span("home,", 4), Span("Anna.", 8)]
    part = TextPart("Go home, Anna.")
    for place, left in ((0, "Go home, Anna."), (5, "home, Anna."), (9, "Anna.")):
        assert rest(part, words, place) == TextPart(left, Break.CLAUSE)
    assert rest(TextPart("Go"), [Span("Go", 0)], 9) == TextPart("Go", Break.CLAUSE)


def test_words_that_cannot_be_told_apart_are_not_said_again() -> None:
    assert rest(TextPart("At 21 h"), [Span("At 21 h", 0, 3)], 3) is None


def state_of(places: list[int]) -> SpeechState:
    state = SpeechState()
    state.open_part([Span("Go", 1), Span("home,", 4), Span("Anna.", 8)], places)
    return state


def speech_of(places: list[int]) -> SpeechStream:
    return SpeechStream(state_of(places), iter(()))


def test_a_word_begins_when_its_first_token_is_said() -> None:
    speech = speech_of([0, 0, 1, 2, 2, 4, 4, 5, 6, 6, 8, 9])
    assert speech.words == [
        Word("Go", 2 / 25, 5 / 25),
        Word("home,", 5 / 25, 10 / 25),
        Word("Anna.", 10 / 25, 12 / 25),
    ]


def test_words_come_while_they_are_said() -> None:
    places = [0, 0, 1]
    speech = speech_of(places)
    assert [word.text for word in speech.words] == ["Go"]
    places += [2, 4]
    assert [word.text for word in speech.words] == ["Go", "home,"]


def test_the_last_word_spoken_is_known() -> None:
    speech = speech_of([0, 0, 1, 2, 2, 4, 4, 5, 6, 6, 8, 9])
    assert speech.word_at(0.0) is None
    for seconds, text in ((0.1, "Go"), (0.25, "home,"), (9.0, "Anna.")):
        word = speech.word_at(seconds)
        assert word is not None
        assert word.text == text


def test_later_parts_begin_where_the_sound_has_come_to() -> None:
    state = state_of([0, 1, 4, 8, 8])
    state.n_samples = 24_000
    state.open_part([Span("Bye.", 1)], [0, 1, 1])
    assert SpeechStream(state, iter(())).words[-1].start_s == pytest.approx(1.04)
