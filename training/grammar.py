"""Everyday sentences made from patterns: what assistants, phones, homes, clocks and clerks say.

The patterns are in patterns.txt, the words for their {slots} in slots.txt and, where numbers are
meant, here. Knows nothing of the sentences that people wrote (training.sources) nor of how the two
are mixed (training.texts).
"""

from __future__ import annotations

import random
import re
from pathlib import Path

from nightingale.text.numbers import clock, number, ordinal

_HERE = Path(__file__).parent
_SLOT = re.compile(r"\{(\w+)\}")
_DOUBLED = {"swim", "run", "shop"}  # verbs whose last letter doubles before -ing


def _gerund(verb: str) -> str:
    if verb in _DOUBLED:
        return verb + verb[-1] + "ing"
    return verb.removesuffix("e") + "ing"


def paragraphs(file: Path) -> list[str]:
    """The paragraphs of a text file as single lines; those that begin with # are comments."""
    parts = file.read_text(encoding="utf-8").split("\n\n")
    return [" ".join(part.split()) for part in parts if not part.startswith("#")]


def _read_slots() -> dict[str, list[str]]:
    slots = {}
    for line in paragraphs(_HERE / "slots.txt"):
        name, _, words = line.partition(": ")
        slots[name] = words.split(", ")
    big = (*range(100, 1000, 7), *range(1000, 10000, 125), *range(10000, 99000, 4500))
    cents = (25, 49, 50, 75, 95, 99)
    minutes = (0, 5, 10, 15, 20, 30, 45, 50, 55)
    digits = [number(n) for n in range(1, 10)]
    return slots | {
        "ordinal": [ordinal(n) for n in range(1, 32)],
        "n": [number(n) for n in range(2, 100)],
        "small": [number(n) for n in range(2, 13)],
        "big": [number(n) for n in big],
        "one": digits,
        "digit": ["oh", *digits],
        "year": [number(n) for n in range(21, 100)],
        "time": [clock(hour, minute) for hour in range(1, 13) for minute in minutes],
        "price": [f"{number(n)} dollars" for n in range(2, 100)]
        + [f"{number(n)} dollars and {number(c)} cents" for n in range(1, 60, 3) for c in cents],
        "verbing": [_gerund(verb) for verb in slots["verb"]],
    }


SLOTS = _read_slots()


def make(pattern: str, rng: random.Random) -> str:
    """One sentence of a pattern; no slot's word is used twice in it, except digits."""
    used: set[str] = set()
    first, second = rng.randrange(2, 90), rng.randrange(2, 90)
    sums = {"number_first": first, "number_second": second, "sum": first + second}

    def fill(slot: re.Match[str]) -> str:
        if slot[1] in sums:
            return number(sums[slot[1]])
        words = [word for word in SLOTS[slot[1]] if word not in used or slot[1] == "digit"]
        used.add(word := rng.choice(words))
        return word

    text = _SLOT.sub(fill, pattern)
    text = re.sub(r"\b([Aa]) (?=[aeio])", r"\1n ", text)
    return text[0].upper() + text[1:]


def everyday(n_each: int, rng: random.Random) -> list[str]:
    """Sentences of every pattern in turn, without repeats."""
    lines = (_HERE / "patterns.txt").read_text(encoding="utf-8").splitlines()
    patterns = [line for line in lines if line and not line.startswith("#")]
    return list(dict.fromkeys(make(p, rng) for _ in range(n_each) for p in patterns))
