"""Words of an utterance, and when they are said."""

from __future__ import annotations

import pytest

from nightingale.core import Word
from nightingale.speech import SpeechState, SpeechStream
from nightingale.text.words import Span, rest, spans

SPACE = 2


def test_words_are_found_between_spaces() -> None:
    assert spans("Go home, Anna.", [255, 9, 9, SPACE, 9, 9, 9, SPACE, 9, 0], SPACE) == [
        Span("Go", 1),
        Span("home,", 4),
        Span("Anna.", 8),
    ]


def test_two_spaces_part_words_as_one_does() -> None:
    assert spans("Go; home", [255, 9, 9, SPACE, SPACE, 9, 0], SPACE) == [
        Span("Go;", 1),
        Span("home", 5),
    ]


def test_words_that_cannot_be_told_apart_stay_together() -> None:
    ids = [255, 9, SPACE, 9, 0]
    assert spans("At 21 h", ids, SPACE) == [Span("At 21 h", 0)]
    assert spans("Go home", ids, None) == [Span("Go home", 0)]


def test_what_is_left_begins_with_a_whole_word() -> None:
    words = [Span("Go", 1), Span("home,", 4), Span("Anna.", 8)]
    assert rest(words, 0) == "Go home, Anna."
    assert rest(words, 5) == "home, Anna."
    assert rest(words, 9) == "Anna."
    assert rest([Span("Go", 0)], 9) == "Go"


def test_words_that_cannot_be_told_apart_are_not_said_again() -> None:
    assert not rest([Span("At 21 h", 0)], 3)


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
