"""Texts that people seldom write and models often break on: numbers, letters, lists, repeats.

Each generator gives texts for ever. Numbers stand in words, as the tokenizer puts them; letters
stand alone and large. Knows nothing of which of them are spoken (training.wide).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from string import ascii_uppercase

from nightingale.text.numbers import spell
from training.grammar import SLOTS

_LETTER_FRAMES = (
    "{}.", "{}.", "The letters are {}.", "It is spelled {}.", "My code is {}.", "Read out {}.",
    "Please type {}.", "That is {}.", "The answer is {}.", "Her initials are {}.", "Say {}.",
    "The license plate begins with {}.", "Is it {}?", "Did you write {}?", "I said {}.",
)  # fmt: skip
_ONE_LETTER = (
    "Press {} to continue.", "Choose option {}.", "Plan {} is better than plan {}.",
    "The word begins with {} and ends with {}.", "Vitamin {} is good for you.", "Go to gate {}.",
    "We sat in row {}.", "{} comes before {}.", "Is the answer {} or {}?", "Turn to section {}.",
    "He got a {} in history.", "Building {} is next to building {}.", "The letter {}.", "{}?",
    "Draw a line from {} to {}.", "Your seat is number {n}, {}.", "Bus {} leaves in {n} minutes.",
)  # fmt: skip
_NUMBER_FRAMES = (
    "{}.", "{}.", "It costs {}.", "The answer is {}.", "The total is {}.", "I counted {}.",
    "Call {}.", "The number is {}.", "There are {} of them.", "She said {}.", "{} or {}?",
    "From {} to {}.", "Between {} and {}.", "Not {}, but {}.", "We sold {} last year.",
    "About {} people came.", "The code is {}.", "Add {} and {}.", "Was it {} or {}?",
)  # fmt: skip
_REPEAT_FRAMES = (
    "{r}.", "{r}!", "{r}?", "{r}, {w}.", "She said {r}.", "It was {r}.", "He shouted {r}!",
    "And then {r}.", "{w}, {r}, and {w} again.", "Please say {r}.", "They went {r}.",
)  # fmt: skip
_LIST_FRAMES = (
    "{l}.", "{l}.", "{l}?", "We need {l}.", "There were {l}.", "I like {l}.", "Write down {l}.",
    "She bought {l}.", "The choices are {l}.", "Do you know {l}?", "Bring {l}, please.",
)  # fmt: skip
_QUESTION_FRAMES = (
    "What does {} mean?", "Did you say {}?", "Is it {} or {}?", "How do you spell {}?",
    "Have you heard of {}?", "Why {}?", "Who said {}?", "Where did you read {}?",
    "Can you say {} again?", "Was that {}?", "Do you mean {}, or {}?", "And {}?",
)  # fmt: skip

Make = Callable[[], str]


def _for_ever(make: Make) -> Iterator[str]:
    while True:
        text = make()
        yield text[0].upper() + text[1:]


def _joined(words: Sequence[str], rng: random.Random) -> str:
    """As a list is written: with commas, and mostly a word before the last."""
    if len(words) < 2:
        return words[0]
    last = rng.choice(("and ", "and ", "or ", ""))
    comma = rng.choice((", ", ", ", " ")) if last else ", "
    return ", ".join(words[:-1]) + comma + last + words[-1]


def letters(words: Sequence[str], rng: random.Random) -> Iterator[str]:
    """Letter names, alone, in rows, and as words are spelled."""

    def make() -> str:
        if rng.random() < 0.35:
            frame = rng.choice(_ONE_LETTER).replace("{n}", rng.choice(SLOTS["n"]))
            return frame.format(*rng.choices(ascii_uppercase, k=2))
        if rng.random() < 0.4:
            word = rng.choice(words)
            row = ", ".join(letter for letter in word.upper() if letter.isalpha())
            return f"{word} is spelled {row}." if rng.random() < 0.5 else f"{row}."
        row = ", ".join(rng.choices(ascii_uppercase, k=rng.randint(1, 8)))
        return rng.choice(_LETTER_FRAMES).format(row)

    return _for_ever(make)


def _figure(rng: random.Random) -> str:
    """A number in digits, of a random kind."""
    whole = rng.randrange(10 ** rng.randint(1, 7))
    kinds: tuple[Make, ...] = (
        lambda: f"{rng.randrange(101)}",
        lambda: f"{rng.randrange(1000)}",
        lambda: f"{whole:,}",
        lambda: f"${rng.randrange(1000)}",
        lambda: f"${rng.randrange(100)}.{rng.randrange(1, 100):02}",
        lambda: f"{rng.randrange(1, 101)}%",
        lambda: f"{rng.randrange(100)}.{rng.randrange(100)}",
        lambda: f"{rng.randint(1, 12)}:{rng.randrange(60):02}",
        lambda: f"{rng.randint(1100, 2099)}",
        lambda: " ".join(str(rng.randrange(10)) for _ in range(rng.randint(3, 10))),
        lambda: f"-{rng.randrange(1, 60)}",
        lambda: f"the {rng.randint(1, 31)}th of {rng.choice(SLOTS['month'])}",
    )
    return rng.choice(kinds)()


def numbers(rng: random.Random) -> Iterator[str]:
    """Numbers, amounts, times, years, in words."""

    def make() -> str:
        return spell(rng.choice(_NUMBER_FRAMES).format(_figure(rng), _figure(rng)))

    return _for_ever(make)


def repeats(words: Sequence[str], rng: random.Random) -> Iterator[str]:
    """The same word, two to eight times."""

    def make() -> str:
        word = rng.choice(words)
        between = rng.choice((" ", " ", ", ", " and "))
        said = between.join([word] * rng.choice((2, 2, 3, 3, 4, 5, 6, 8)))
        return rng.choice(_REPEAT_FRAMES).format(r=said, w=word)

    return _for_ever(make)


def lists(words: Sequence[str], rng: random.Random) -> Iterator[str]:
    """Words in a row, of one kind or of any."""
    kinds = [SLOTS[k] for k in ("name", "food", "city", "color", "animal", "job", "topic", "day")]

    def make() -> str:
        n = rng.randint(3, 9)
        source = rng.choice(kinds) if rng.random() < 0.4 else words
        row = _joined(rng.sample(source, min(n, len(source))), rng)
        return rng.choice(_LIST_FRAMES).format(l=row)

    return _for_ever(make)


def questions(words: Sequence[str], rng: random.Random) -> Iterator[str]:
    """Short questions about words."""
    return _for_ever(lambda: rng.choice(_QUESTION_FRAMES).format(*rng.sample(words, 2)))


def bits(sentences: Sequence[str], rng: random.Random) -> Iterator[str]:
    """One to three words in a row out of sentences, with a mark of their own."""

    def make() -> str:
        words = [word.strip(",.?!-") for word in rng.choice(sentences).split()]
        n = min(rng.randint(1, 3), len(words))
        at = rng.randrange(len(words) - n + 1)
        return " ".join(words[at : at + n]) + rng.choice((".", ".", ".", "?", "!"))

    return _for_ever(make)
