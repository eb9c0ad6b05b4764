"""Texts that make speech models babble, loop, skip or fall silent: how often, with the guard and
without it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

from nightingale.measure import texts

LETTERS = list("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
SMALL = [
    "yes",
    "no",
    "hi",
    "oh",
    "ok",
    "stop",
    "go",
    "wait",
    "why",
    "what",
    "now",
    "here",
    "thanks",
    "sorry",
    "hello",
    "goodbye",
]
THINGS = [
    "door",
    "window",
    "river",
    "garden",
    "letter",
    "winter",
    "summer",
    "morning",
    "engine",
    "paper",
    "candle",
    "bread",
]
COUNTS = [
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "thirty",
    "forty",
]


def nasty(n: int, seed: int = 0) -> list[str]:
    """n texts, kind after kind by turns, the same for the same seed; one of fifty is long."""
    chance = random.Random(seed)
    known = texts.read("held_out")
    return [kind(chance, known) for kind, _ in zip(_by_turns(), range(n), strict=False)]


Kind = Callable[[random.Random, list[str]], str]


def _by_turns() -> Iterator[Kind]:
    number = 0
    while True:
        for kind in (
            one_word, letter, number_word, short, repeated, spelled, shouted, stops, listed,
            nested, tangled, unspaced,
        ):  # fmt: skip
            number += 1
            yield long if number % 50 == 0 else kind


def one_word(chance: random.Random, _: list[str]) -> str:
    return chance.choice(SMALL + THINGS).capitalize() + chance.choice(".!?")


def letter(chance: random.Random, _: list[str]) -> str:
    return chance.choice(LETTERS) + "."


def number_word(chance: random.Random, _: list[str]) -> str:
    return f"{chance.randrange(2, 99)}."


def short(chance: random.Random, _: list[str]) -> str:
    return f"{chance.choice(SMALL).capitalize()}, the {chance.choice(THINGS)}."


def repeated(chance: random.Random, _: list[str]) -> str:
    word = chance.choice(SMALL)
    return ", ".join([word.capitalize(), *[word] * chance.randrange(2, 7)]) + "."


def spelled(chance: random.Random, _: list[str]) -> str:
    return ", ".join(chance.sample(LETTERS, 5)) + "."


def shouted(chance: random.Random, known: list[str]) -> str:
    return " ".join(chance.choice(known).split()[:6]).upper().rstrip(".,") + "!"


def stops(chance: random.Random, _: list[str]) -> str:
    return f"Well... {chance.choice(SMALL)}?! The {chance.choice(THINGS)}... is -- gone..."


def listed(chance: random.Random, _: list[str]) -> str:
    things = chance.sample(THINGS, 6)
    return "; ".join(f"{chance.choice(COUNTS)} {thing}s" for thing in things).capitalize() + "."


def nested(chance: random.Random, known: list[str]) -> str:
    inner = chance.choice(known).rstrip(".!?")
    return f'"{inner}" (so he said, [twice]) was all.'


def tangled(chance: random.Random, _: list[str]) -> str:
    a, b = chance.sample(THINGS, 2)
    return f"The {a} that the {b} that the {a} saw saw saw the {b}."


def unspaced(chance: random.Random, known: list[str]) -> str:
    return "\n\n".join(chance.sample(known, 2))


def long(chance: random.Random, known: list[str]) -> str:
    wanted, text = chance.choice((300, 600, 1000, 3000)), ""
    while len(text) < wanted:
        text += chance.choice(known) + " "
    return text.strip()
