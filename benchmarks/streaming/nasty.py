"""Texts that make speech models babble, loop, skip or fall silent: how often, with the guard and
without it."""

from __future__ import annotations

import random
import re
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from nightingale.core import SAMPLES_PER_SECOND
from nightingale.measure import texts
from nightingale.measure.words import Edits, align, word_edits

Sound = NDArray[np.float32]

# The judge, Whisper, makes up words when all there is to hear is one syllable: of the teacher's 26
# letters it writes 16 wrong, and 6 behind some words by the same voice.
LEAD = "And the last one is this."
LEAD_HEARD = re.compile(r"(?:\S+\s+){0,6}?this\b\W*", re.IGNORECASE)
SHORT = 3  # words

LETTERS = list("ABCDEFGHIJKLMNOPQRSTUVWXYZ")
NAMES = {
    name: letter
    for letter, names in {
        "a": "ay eh", "b": "be bee", "c": "see sea", "d": "dee", "f": "eff ef", "g": "gee",
        "h": "aitch", "i": "eye aye", "j": "jay", "k": "kay", "l": "el ell", "m": "em", "n": "en",
        "o": "oh owe", "p": "pea pee", "q": "queue cue", "r": "are", "s": "ess", "t": "tea tee",
        "u": "you", "v": "vee", "x": "ex", "y": "why", "z": "zee zed",
    }.items()
    for name in names.split()
}  # fmt: skip
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


@dataclass(frozen=True, slots=True)
class Nasty:
    """A text, and what is nasty about it."""

    kind: str
    text: str


def nasty(n: int, seed: int = 0) -> list[Nasty]:
    """n texts, kind after kind by turns, the same for the same seed; one of fifty is long."""
    rng = random.Random(seed)
    known = texts.read("held_out")
    kinds = zip(_by_turns(), range(n), strict=False)
    return [Nasty(kind.__name__, kind(rng, known)) for kind, _ in kinds]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What a judge made of one of them."""

    nasty: Nasty
    heard: str
    edits: Edits

    @property
    def is_catastrophe(self) -> bool:
        """More than half of the words are wrong."""
        return self.edits.rate > 0.5

    @property
    def is_babble(self) -> bool:
        """Far more was heard than was asked for."""
        return self.edits.added > max(2, self.edits.n_reference / 2)

    @property
    def is_cut(self) -> bool:
        """Far less was."""
        return self.edits.dropped > max(2, self.edits.n_reference / 2)


def judge(
    asked: Iterable[Nasty], speak: Callable[[int, str], Sound], hear: Callable[[Sound], str]
) -> Iterator[Verdict]:
    """Speak each, the number being its seed, and listen."""
    lead = np.concatenate((speak(0, LEAD), np.zeros(SAMPLES_PER_SECOND // 5, np.float32)))
    for seed, each in enumerate(asked):
        sound = speak(seed, each.text)
        is_short = len(each.text.split()) <= SHORT
        heard = is_short and _behind_lead(hear(np.concatenate((lead, sound))))
        if heard is False:
            heard = hear(sound)
        edits = letter_edits if each.kind in ("letter", "spelled") else word_edits
        yield Verdict(each, heard, edits(each.text, heard))


def _behind_lead(heard: str) -> str | Literal[False]:
    """What was said after the lead; False if that was not understood."""
    found = LEAD_HEARD.match(heard)
    return found is not None and heard[found.end() :]


def letter_edits(asked: str, heard: str) -> Edits:
    """Letters as they sound: "Y." may be written as "Why?", and "Z, J, P." as "ZJP"."""
    words = re.findall(r"[a-z]+", heard.lower().replace("double you", "w").replace("double u", "w"))
    letters = [letter for word in words for letter in NAMES.get(word, word)]
    return align(re.findall("[a-z]", asked.lower()), letters, max_joined=1)


def summary(verdicts: Sequence[Verdict]) -> dict[str, Any]:
    bad = [verdict for verdict in verdicts if verdict.is_catastrophe]
    return {
        "n": len(verdicts),
        "n_over_half_wrong": len(bad),
        "of_kind": dict(Counter(verdict.nasty.kind for verdict in bad).most_common()),
        "n_babble": sum(verdict.is_babble for verdict in verdicts),
        "n_cut": sum(verdict.is_cut for verdict in verdicts),
        "mean_rate": statistics.mean(verdict.edits.rate for verdict in verdicts),
    }


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


def one_word(rng: random.Random, _: list[str]) -> str:
    return rng.choice(SMALL + THINGS).capitalize() + rng.choice(".!?")


def letter(rng: random.Random, _: list[str]) -> str:
    return rng.choice(LETTERS) + "."


def number_word(rng: random.Random, _: list[str]) -> str:
    return f"{rng.randrange(2, 99)}."


def short(rng: random.Random, _: list[str]) -> str:
    return f"{rng.choice(SMALL).capitalize()}, the {rng.choice(THINGS)}."


def repeated(rng: random.Random, _: list[str]) -> str:
    word = rng.choice(SMALL)
    return ", ".join([word.capitalize(), *[word] * rng.randrange(2, 7)]) + "."


def spelled(rng: random.Random, _: list[str]) -> str:
    return ", ".join(rng.sample(LETTERS, 5)) + "."


def shouted(rng: random.Random, known: list[str]) -> str:
    return " ".join(rng.choice(known).split()[:6]).upper().rstrip(".,") + "!"


def stops(rng: random.Random, _: list[str]) -> str:
    return f"Well... {rng.choice(SMALL)}?! The {rng.choice(THINGS)}... is -- gone..."


def listed(rng: random.Random, _: list[str]) -> str:
    things = rng.sample(THINGS, 6)
    return "; ".join(f"{rng.choice(COUNTS)} {thing}s" for thing in things).capitalize() + "."


def nested(rng: random.Random, known: list[str]) -> str:
    inner = rng.choice(known).rstrip(".!?")
    return f'"{inner}" (so he said, [twice]) was all.'


def tangled(rng: random.Random, _: list[str]) -> str:
    a, b = rng.sample(THINGS, 2)
    return f"The {a} that the {b} that the {a} saw saw saw the {b}."


def unspaced(rng: random.Random, known: list[str]) -> str:
    return "\n\n".join(rng.sample(known, 2))


def long(rng: random.Random, known: list[str]) -> str:
    wanted, text = rng.choice((300, 600, 1000, 3000)), ""
    while len(text) < wanted:
        text += rng.choice(known) + " "
    return text.strip()
