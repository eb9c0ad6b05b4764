"""Texts are cut where people pause, and the same way however they are handed over."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from nightingale.text.split import SINGLE, WHOLE, gather, split

STORY = (
    'Dr. Miller came in at 3.5 past nothing, which surprised us. "Is it you?" she asked! '
    "Nobody knew; the lamp, old as it was, went on... and on. A very long clause that never "
    "seems to find its end went on and on about the weather and the state of the roads in May, "
    "and about the price of apples, until the last of the listeners had left. Then it rained."
)


def handed(text: str, seed: int) -> Iterator[str]:
    chance = random.Random(seed)
    while text:
        n = chance.randint(1, 30)
        yield text[:n]
        text = text[n:]


def test_a_short_text_stays_whole() -> None:
    assert split("Hello there. How are you?") == ["Hello there. How are you?"]
    assert split(STORY[: WHOLE.limit]) == [STORY[: WHOLE.limit].strip()]


def test_a_long_text_is_cut_between_sentences() -> None:
    parts = split(5 * (STORY + " "))
    assert " ".join(parts) == (5 * (STORY + " ")).strip()
    assert all(len(part) <= WHOLE.limit for part in parts)
    assert all(part[-1] in '.!?"' for part in parts)


def test_a_model_that_knows_single_sentences_gets_one_at_a_time() -> None:
    said = "It was late. Mr. Gray asked her to stay, and she did. Why? Nobody knows."
    alone = ["It was late.", "Mr. Gray asked her to stay, and she did.", "Why? Nobody knows."]
    assert split(said, SINGLE) == alone
    assert list(gather([said], SINGLE)) == alone
    assert all(len(part) <= SINGLE.limit for part in split(5 * (STORY + " "), SINGLE))


@pytest.mark.parametrize("seed", range(20))
def test_it_does_not_matter_how_the_words_come(seed: int) -> None:
    assert list(gather(handed(STORY, seed))) == list(gather([STORY]))


def test_nothing_is_lost_and_the_first_part_comes_soon() -> None:
    parts = [part for part in gather([STORY]) if part]
    assert " ".join(parts) == STORY
    assert parts[0] == "Dr. Miller came in at 3.5 past nothing,"
    read: list[str] = []

    def writing() -> Iterator[str]:
        for word in STORY.split(" "):
            read.append(word)
            yield word + " "

    next(gather(writing()))
    assert len(read) == 8


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("Yes. I will come.", "Yes."),
        ("Mr. Bean, Mrs. Hill and St. Paul met today. Good.", "Mr. Bean, Mrs. Hill and St. Paul"),
        ("It costs 3.50 today. Fine.", "It costs 3.50 today."),
        ("今日はいい天気です。散歩に行きましょう。", "今日はいい天気です。"),
        ('"Stop!" he said, and left.', '"Stop!"'),
    ],
)
def test_where_the_first_cut_is(text: str, first: str) -> None:
    assert (next(gather([text])) or "").startswith(first)


def test_words_without_any_stop_are_cut_between_words() -> None:
    text = "word " * 400
    parts = split(text)
    assert all(len(part) <= WHOLE.limit for part in parts)
    assert " ".join(parts) == text.strip()
    assert max(map(len, split("x" * 1000))) <= WHOLE.limit


def test_what_cannot_be_spoken_is_not_a_part_of_its_own() -> None:
    assert list(gather(["Hello there, my friend. ", "...", " !? ", "Go."])) == [
        "Hello there, my friend.",
        "... !? Go.",
    ]
    assert list(gather(["...", "  "])) == []
    assert split("...") == ["..."]
