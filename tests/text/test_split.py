"""Texts are cut where people pause, and the same way however they are handed over."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from nightingale.text import split as splitting
from nightingale.text.split import EAGER, SINGLE, WHOLE, SplitPolicy, TextPart
from nightingale.text.structure import Break

STORY = (
    'Dr. Miller came in at 3.5 past nothing, which surprised us. "Is it you?" she asked! '
    "Nobody knew; the lamp, old as it was, went on... and on. A very long clause that never "
    "seems to find its end went on and on about the weather and the state of the roads in May, "
    "and about the price of apples, until the last of the listeners had left. Then it rained."
)

BOOK = """THE LIGHTHOUSE
By Nobody

Chapter 1
The Letter

Nobody in the village knew who had lit the lamp,
and nobody asked. It burned.

* * *

## What to bring
- milk
* bread, and
  butter
1. One of these.
2) Two of those.

The U.K. signed at 5 p.m. today. Good.
"""


def split(text: str, policy: SplitPolicy = WHOLE) -> list[str]:
    return [part.text for part in splitting.split(text, policy)]


def split_stream(pieces: Iterable[str], policy: SplitPolicy = EAGER) -> Iterator[str | None]:
    return (None if part is None else part.text for part in splitting.split_stream(pieces, policy))


def handed(text: str, seed: int) -> Iterator[str]:
    rng = random.Random(seed)
    while text:
        n = rng.randint(1, 30)
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
    assert list(split_stream([said], SINGLE)) == alone
    assert all(len(part) <= SINGLE.limit for part in split(5 * (STORY + " "), SINGLE))


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("text", [STORY, BOOK])
def test_it_does_not_matter_how_the_words_come(seed: int, text: str) -> None:
    whole = list(splitting.split_stream([text]))
    assert list(splitting.split_stream(handed(text, seed))) == whole


def test_nothing_is_lost_and_the_first_part_comes_soon() -> None:
    parts = [part for part in split_stream([STORY]) if part]
    assert " ".join(parts) == STORY
    assert parts[0] == "Dr. Miller came in at 3.5 past nothing,"
    read: list[str] = []

    def writing() -> Iterator[str]:
        for word in STORY.split(" "):
            read.append(word)
            yield word + " "

    next(split_stream(writing()))
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
    assert (next(split_stream([text])) or "").startswith(first)


def test_words_without_any_stop_are_cut_between_words() -> None:
    text = "word " * 400
    parts = split(text)
    assert all(len(part) <= WHOLE.limit for part in parts)
    assert " ".join(parts) == text.strip()
    assert max(map(len, split("x" * 1000))) <= WHOLE.limit


@pytest.mark.parametrize("policy", [WHOLE, SINGLE])
def test_a_word_may_end_where_a_part_is_full(policy: SplitPolicy) -> None:
    for n_first in range(1, 12):
        text = " ".join(["x" * n_first, *["x" * 9] * 60])
        parts = split(text, policy)
        assert " ".join(parts) == text
        assert max(map(len, parts)) <= policy.limit


def test_what_cannot_be_spoken_is_not_a_part_of_its_own() -> None:
    assert list(split_stream(["Hello there, my friend. ", "...", " !? ", "Go."])) == [
        "Hello there, my friend.",
        "... !? Go.",
    ]
    assert list(split_stream(["...", "  "])) == []
    assert split("...") == ["..."]


def test_the_layout_of_a_text_decides_its_pauses() -> None:
    assert splitting.split(BOOK, SINGLE) == [
        TextPart("THE LIGHTHOUSE", Break.NONE),
        TextPart("By Nobody", Break.ITEM),
        TextPart("Chapter 1", Break.HEADING),
        TextPart("The Letter", Break.ITEM),
        TextPart(
            "Nobody in the village knew who had lit the lamp, and nobody asked.", Break.HEADING
        ),
        TextPart("It burned.", Break.SENTENCE),
        TextPart("What to bring", Break.HEADING),
        TextPart("milk", Break.HEADING),
        TextPart("bread, and butter", Break.ITEM),
        TextPart("1. One of these.", Break.ITEM),
        TextPart("2) Two of those.", Break.ITEM),
        TextPart("The U.K. signed at 5 p.m. today.", Break.PARAGRAPH),
        TextPart("Good.", Break.SENTENCE),
    ]


def test_paragraphs_are_parts_even_where_sentences_stay_together() -> None:
    said = "One. Two.\n\nThree.\nFour.\r\n\r\nFive."
    assert splitting.split(said) == [
        TextPart("One. Two.", Break.NONE),
        TextPart("Three. Four.", Break.PARAGRAPH),
        TextPart("Five.", Break.PARAGRAPH),
    ]


def test_a_rule_before_the_first_word_is_no_pause() -> None:
    assert splitting.split("---\n\nGo.") == [TextPart("Go.", Break.NONE)]


@pytest.mark.parametrize("text", ["2024 was long.", "-5 degrees", "#1 of all", "12", "- ", "3.5 l"])
def test_what_only_looks_like_a_mark_is_kept(text: str) -> None:
    kept = text.strip() if any(map(str.isalnum, text)) else text
    assert split(text) == [kept]


KINDS = {
    "quotes": '"',
    "full stops": ". ",
    "prose": STORY,
    "book": BOOK,
    "words": "word ",
    "letters": "x",
    "newlines": "\n",
    "marks": "1. ",
    "hashes": "#",
    "stops and quotes": '."',
    "han": "你好。」",
    "digits": "12345",
    "form feeds": "a\f",
    "spaces": " ",
    "bullets": "- \n",
    "initials": "U.S.A.",
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("policy", [SINGLE, WHOLE])
def test_splitting_takes_time_in_proportion_to_the_text(kind: str, policy: SplitPolicy) -> None:
    """Steps of the interpreter are counted, not seconds: a busy machine changes nothing."""

    def steps(n_characters: int) -> int:
        text = (KINDS[kind] * n_characters)[:n_characters]
        n_steps = 0

        def count(_frame: object, _event: str, _argument: object) -> Any:
            nonlocal n_steps
            n_steps += 1
            return count

        before = sys.gettrace()
        sys.settrace(count)
        try:
            splitting.split(text, policy)
        finally:
            sys.settrace(before)
        return n_steps

    assert steps(1600) < 2.5 * steps(800)


SENTENCES = SplitPolicy(sentence=1, clause=10**9, limit=10**9)


@pytest.mark.parametrize(
    ("language", "sentences"),
    [
        (
            "de",
            [
                "Am 3. Mai kam z. B. Dr. Meier.",
                "Er ist 25.",
                "Sie ist da usw.",
                "Ludwig XIV. lebt.",
            ],
        ),
        ("de", ["Der 2. Weltkrieg endete 1945.", "Danach, d. h. ab Mai, war Ruhe."]),
        ("en", ["It is 10:45 a.m. in the U.S. office, e.g. Dr. Lee.", "No.", "I met J. Smith."]),
        ("en", ["Pi is 3.14 in No. 5.", "He left at 5 p.m.", "Then (etc.) it rained."]),
        ("da", ["Den 3. maj kom hun bl.a. hertil.", "Godt."]),
        ("pl", ["To jest 3. dzień, np. dziś.", "Tak."]),
        ("ru", ["В 2024 г. в Москве и т.д.", "Потом."]),
        ("fr", ["M. Dupont et Mme. Roy sont là.", "Oui."]),
        ("es", ["El Sr. Gil vive en EE.UU. desde ayer.", "Sí."]),
    ],
)
def test_full_stops_of_abbreviations_and_ordinals_end_no_sentence(
    language: str, sentences: list[str]
) -> None:
    text = " ".join(sentences)
    assert [part.text for part in splitting.split(text, SENTENCES, language)] == sentences

    def stream(pieces: Iterable[str]) -> list[str]:
        parts = splitting.split_stream(pieces, SENTENCES, language)
        return [part.text for part in parts if part]

    for seed in range(5):
        assert stream(handed(text, seed)) == stream([text])
