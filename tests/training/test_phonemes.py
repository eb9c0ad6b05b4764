"""How words are chosen that T3 is given as sounds."""

from __future__ import annotations

from collections import Counter

from nightingale.weights.manifest import BUNDLE
from training.phonemes import SOUNDS, choose, distance, keys, teachers

READ: list[tuple[str, ...]] = [("R", "EH1", "D"), ("R", "IY1", "D")]


def test_the_teachers_phonemes_are_put_into_the_dictionarys() -> None:
    assert teachers("θˈɜɹməstˌæt") == ("TH", "ER", "M", "AH", "S", "T", "AE", "T")
    assert teachers("sˈɪŋəɹ") == ("S", "IH", "NG", "ER")


def test_a_vowel_for_another_is_half_a_difference() -> None:
    assert distance(("K", "AE1", "T"), ("K", "AH", "T")) == 0.5
    assert distance(("K", "AE1", "T"), ("K", "AE", "T", "S")) == 1


def test_the_way_that_was_heard_is_chosen() -> None:
    assert choose(READ, Counter({("R", "IY", "D"): 9})) == READ[1]
    assert choose(READ, Counter()) == READ[0]


def test_a_word_that_is_said_in_two_ways_is_left_to_its_letters() -> None:
    assert choose(READ, Counter({("R", "IY", "D"): 5, ("R", "EH", "D"): 5})) is None


def test_a_word_that_the_teacher_says_quite_otherwise_is_left_to_its_letters() -> None:
    assert choose([("N", "OW1")], Counter({("N", "AH", "M", "B", "ER"): 5})) is None


def test_a_lone_large_letter_is_not_the_article() -> None:
    assert list(keys("A cat has an A, no B.")) == ["a", "cat", "has", "an", "A", "no", "B"]


def test_letters_and_sounds_fit_before_the_start_of_text() -> None:
    from tokenizers import Tokenizer

    n_letters = Tokenizer.from_file(str(BUNDLE / "tokenizer.json")).get_vocab_size()
    assert n_letters - 1 + len(SOUNDS) <= 255
    assert len(set(SOUNDS)) == len(SOUNDS) == 69
