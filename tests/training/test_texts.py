"""Which sentences are chosen to be spoken, and which are kept apart."""

from __future__ import annotations

import random
import re

import pytest

from nightingale.text.numbers import clock, number, ordinal
from training.grammar import everyday
from training.shorts import shorts
from training.sources import sentences_of
from training.texts import (
    Near,
    clean,
    common_words,
    compose,
    drills,
    fits,
    inflected_words,
    words_of,
)

KNOWN = [
    *("the", "a", "cat", "dog", "sat", "on", "mat", "and", "saw", "house", "old", "man", "went"),
    *("home", "there", "was", "it's", "rain", "fell"),
]


@pytest.mark.parametrize(
    ("raw", "kept"),
    [
        ("The cat  sat , there.", "The cat sat, there."),
        ("It’s old; so what?", "It's old, so what?"),
        ("The cat sat in 1950.", None),
        ("The USA sat there.", None),
        ("Then Mr. Brown sat down.", None),
        ("He sat. She left.", None),
        ("'Come in,' he said.", None),
        ("the cat sat.", None),
        ("No full stop", None),
        ("Café au lait.", None),
        ("A well-known cat sat.", "A well-known cat sat."),
    ],
)
def test_only_plain_single_sentences_are_kept(raw: str, kept: str | None) -> None:
    assert clean(raw) == kept


@pytest.mark.parametrize(
    ("text", "fit"),
    [
        ("The cat sat.", True),
        ("The cat's mat sat.", True),
        ("Cat sat.", False),
        ("The wombat sat.", False),
        ("The" + " cat" * 25 + ".", False),
    ],
)
def test_a_sentence_is_neither_short_nor_long_and_its_words_are_known(text: str, fit: bool) -> None:
    assert fits(text, frozenset(KNOWN)) is fit


def test_near_finds_what_differs_in_a_word_but_not_what_shares_one() -> None:
    near = Near(["The old man went home and the rain fell."])
    assert "The old man went home and the snow fell." in near
    assert "The old cat saw a dog and the rain." not in near


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        (number(0), "zero"),
        (number(47), "forty-seven"),
        (number(805), "eight hundred and five"),
        (number(21_300), "twenty-one thousand three hundred"),
        (ordinal(12), "twelfth"),
        (ordinal(20), "twentieth"),
        (ordinal(31), "thirty-first"),
        (clock(7, 0), "seven o'clock"),
        (clock(7, 5), "seven oh five"),
        (clock(7, 45), "seven forty-five"),
    ],
)
def test_numbers_are_words(said: str, wanted: str) -> None:
    assert said == wanted


def test_patterns_give_whole_clean_sentences_and_the_same_ones_every_time() -> None:
    made = everyday(3, random.Random(1))
    assert made == everyday(3, random.Random(1))
    assert len(set(made)) == len(made) > 200
    assert [text for text in made if clean(text) != text] == []


def test_short_texts_are_many_different_and_short() -> None:
    texts = [text for text in shorts(random.Random(1)) if len(words_of(text)) <= 4]
    assert len(set(texts)) == len(texts) > 1600
    assert [text for text in texts if not re.fullmatch(r"[A-Z][A-Za-z ,'-]*[.?!]", text)] == []


def test_running_text_is_cut_at_its_sentences() -> None:
    assert sentences_of('He sat.  "Why?" she\nsaid. Rain!') == [
        "He sat.",
        'Why?" she said.',
        "Rain!",
    ]


def test_drills_bring_every_common_word_to_three_times() -> None:
    common = {"cat": "cat", "paris": "Paris", "dog": "dog"}
    made = drills(["The cat sat.", "A cat, a cat."], common, random.Random(1))
    words = words_of(" ".join(made))
    assert words.count("paris") >= 3
    assert words.count("dog") >= 3
    assert "Paris" in " ".join(made)


@pytest.mark.parametrize(
    "word", ["claims", "boxes", "walked", "moved", "moving", "stopped", "tries"]
)
def test_a_common_word_may_be_known_by_its_stem(word: str) -> None:
    entries = {"claim", "box", "walk", "move", "stop", "try", "the"}
    assert inflected_words([word, "the", "zzzs", "thats"], entries) == {word: word}


def test_common_words_are_written_as_in_the_dictionary_and_others_left_out() -> None:
    known = ["the", "paris", "tv", "claims"]
    assert common_words(known, {"the", "Paris"}) == {"the": "the", "paris": "Paris"}


@pytest.mark.slow
def test_what_is_held_out_is_never_trained_on() -> None:
    subjects, verbs = ("cat", "dog", "man", "rain", "house"), ("saw", "sat on", "went and saw")
    sources = [
        ("example", f"The {a} {verb} the old {b}{c}.")
        for a in subjects
        for verb in verbs
        for b in subjects
        for c in ("", " and the mat", " there")
    ]
    texts = compose(sources, KNOWN, {}, {})
    train = [text.text for text in texts if text.split == "train"]
    held = [text.text for text in texts if text.split == "held_out"]
    short = [text.text for text in texts if text.split == "short"]
    assert len(held) == 250
    assert len(short) == 100
    examples = [text.text for text in texts if (text.split, text.kind) == ("held_out", "example")]
    assert [t for i, t in enumerate(examples) if t in Near(examples[:i])] == []
    near = Near(held)
    assert [t for t in train if len(words_of(t)) > 4 and t in near] == []
    assert not {" ".join(words_of(t)) for t in train} & {
        " ".join(words_of(t)) for t in short + held
    }
    assert texts == compose(sources, KNOWN, {}, {})
    assert len({text.id for text in texts}) == len(texts)
