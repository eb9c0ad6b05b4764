"""Spelling is not speech, and every real difference is counted once."""

from __future__ import annotations

import pytest

from nightingale.measure.words import Edits, align, character_edits, error_rate, word_edits

SAME = [
    ("Now?", "Now..."),
    ("Wait… what?", "Wait, what?"),
    ("Ok, go.", "Okay... go!"),
    ("Hello, World!", "hello world"),
    ("It's late.", "it is late"),
    ("Don't go.", "do not go"),
    ("Twenty-five boats", "25 boats"),
    ("In nineteen ninety nine", "in 1999"),
    ("two thousand and twenty four", "2024"),
    ("the first of May", "the 1st of May"),
    ("At 7:30 sharp", "at seven thirty sharp"),
    ("at eleven forty-five", "at 11.45"),
    ("at one fifteen", "at 1:15"),
    ("three point five", "3.5"),
    ("on the twenty-fifth of June", "on 25 June"),
    ("on March third", "on March 3"),
    ("a hundred people", "100 people"),
    ("one million", "1,000,000"),
    ("twenty dollars", "$20"),
    ("five percent", "5%"),
    ("The colour of the harbour", "the color of the harbor"),
    ("She realised it.", "she realized it"),
    ("Dr. Brown and Mr. Green", "doctor Brown and mister Green"),
    ("a café", "a cafe"),
    ("He said (quietly) yes.", "he said quietly yes"),
    ("by the riverbank now", "by the river bank now"),
    ("the river bank", "the riverbank"),
    ("every body knows", "everybody knows"),
    ("an ice cream-stand", "an icecream stand"),
]

DIFFERENT = [  # asked for, heard, substituted, dropped, added
    ("the cat sat down", "the cat sat down", 0, 0, 0),
    ("the cat sat down", "the hat sat down", 1, 0, 0),
    ("the cat sat down", "the sat down", 0, 1, 0),
    ("the cat sat down", "the big cat sat down", 0, 0, 1),
    ("the cat sat down", "", 0, 4, 0),
    ("", "thank you", 0, 0, 2),
    ("the cat sat down", "the cat sat sat down down", 0, 0, 2),
    ("by the riverbank now", "by the river bank then", 1, 0, 0),
    ("by the riverbank", "by the river", 1, 0, 0),
    ("twenty five", "twenty six", 1, 0, 0),
    ("fifteen", "fifty", 1, 0, 0),
    ("the third of May", "the fourth of May", 1, 0, 0),
    ("the third of many", "third many", 0, 2, 0),
    ("a b c d", "b c d e", 0, 1, 1),
]


@pytest.mark.parametrize(("asked", "heard"), SAME)
def test_two_spellings_are_the_same_words(asked: str, heard: str) -> None:
    for edits in (word_edits(asked, heard), word_edits(heard, asked)):
        assert edits.total == 0
        assert edits.n_reference > 0
    assert character_edits(asked, heard).total == 0


@pytest.mark.parametrize(("asked", "heard", "substituted", "dropped", "added"), DIFFERENT)
def test_every_difference_is_counted_once_and_by_its_kind(
    asked: str, heard: str, substituted: int, dropped: int, added: int
) -> None:
    edits = word_edits(asked, heard)
    found = (edits.substituted, edits.dropped, edits.added)
    assert found == (substituted, dropped, added)


def test_a_compound_is_one_word_only_when_all_of_it_is_there() -> None:
    assert align(["ab", "cd"], ["abcd"]).total == 0
    assert align(["a", "b", "c"], ["abc"]).total == 0
    assert align(["ab", "cd"], ["a", "bcd"]).total == 0
    assert align(["a", "b", "c", "d"], ["abcd"]).total == 4, "four are no compound any more"
    assert align(["ab", "cd"], ["abce"]).total == 2
    assert align("abc", "xbc", max_joined=1) == Edits(3, substituted=1)


def test_characters_tell_how_far_off_a_wrong_word_is() -> None:
    near, far = (character_edits("the boats", heard) for heard in ("the goats", "the fisherman"))
    assert near == Edits(8, substituted=1)
    assert far.total > near.total


def test_edits_add_up_and_long_texts_weigh_more() -> None:
    short, long = Edits(1, substituted=1), Edits(9)
    assert short + long + Edits(0, added=2) == Edits(10, substituted=1, added=2)
    assert error_rate([short, long]).value == pytest.approx(0.1)
    assert Edits(0, added=2).rate == 2
