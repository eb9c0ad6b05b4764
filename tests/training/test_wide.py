"""What T3 alone learns from: exercises, and what is kept apart."""

from __future__ import annotations

import random
import re
from collections import Counter
from itertools import islice

import pytest

from nightingale.text.letters import ALONE
from training import generated_texts
from training.texts import Near, words_of
from training.wide import N_TIMES, Choice, drills, fits, joined

WORDS = ["cat", "house", "Anna", "river", "green", "seven", "open", "window", "paper", "very"]
KNOWN = frozenset(word.lower() for word in WORDS) | {"the", "a", "is", "old", "saw"}


def test_numbers_are_in_words() -> None:
    for text in islice(generated_texts.numbers(random.Random(1)), 300):
        assert re.fullmatch(r"[A-Z][A-Za-z ,'-]*[.?]", text), text


def test_letters_stand_alone_and_large() -> None:
    texts = list(islice(generated_texts.letters(WORDS, random.Random(1)), 300))
    assert all(re.search(r"\b[A-Z]\b", text) for text in texts)
    assert len({letter for text in texts for letter in ALONE.findall(text)}) == 25  # I is a word


def test_repeats_say_a_word_again_and_again() -> None:
    for text in islice(generated_texts.repeats(WORDS, random.Random(1)), 100):
        assert max(Counter(words_of(text)).values()) >= 2, text


def test_lists_have_three_words_or_more() -> None:
    for text in islice(generated_texts.lists(WORDS, random.Random(1)), 100):
        assert len(words_of(text)) >= 3, text


def test_bits_are_one_to_three_words() -> None:
    made = generated_texts.bits(["The old cat saw a green house."], random.Random(1))
    assert {len(words_of(text)) for text in islice(made, 60)} == {1, 2, 3}


def test_joined_texts_are_not_too_long() -> None:
    sentences = ["The cat is old."] * 9 + ["The cat " + "is old " * 16 + "."]
    for text in islice(joined(sentences, random.Random(1)), 50):
        assert 6 <= len(words_of(text)) <= 34


@pytest.mark.parametrize(
    ("text", "fit"),
    [("The cat's house.", True), ("The zebra.", False), ("The old " * 18, False), ("!", False)],
)
def test_texts_fit_when_all_words_are_known(text: str, fit: bool) -> None:
    assert fits(text, KNOWN) is fit


def test_nothing_near_a_held_out_sentence_is_learned_nor_anything_twice() -> None:
    held = "The old cat saw a green house."
    choice = Choice(Near([held]), ["the river is old"], KNOWN)
    for text in (held, "The old cat saw a green river.", "The river is old!"):
        choice.add("book", text)
    assert not choice.rows
    choice.add("book", "A river is very open.")
    choice.add("chat", "A river is very open?")
    assert choice.rows == [("book", "A river is very open.")]
    assert choice.n_words == {"book": 5}


def test_drills_bring_every_common_word_often_enough() -> None:
    rows = [("book", "The cat saw the house.")] * 4
    common = {word.lower(): word for word in WORDS}
    made = [*(text for _, text in rows), *drills(rows, common, random.Random(1))]
    count = Counter(word for text in made for word in words_of(text))
    assert all(count[word] >= N_TIMES for word in common)
