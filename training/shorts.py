"""Texts of one to four words: the hardest length for a speech model, so they get their own list."""

from __future__ import annotations

import random
import re
from itertools import product
from pathlib import Path

from nightingale.text.numbers import number
from training.grammar import SLOTS, paragraphs

_HERE = Path(__file__).parent
_ASKS = re.compile(
    r"(?:who|what|where|when|why|how|which|whose|do|does|did|can|could|will|would|is|are|was|were|"
    r"who's|what's|where's|anything)\b(?!')",
    re.IGNORECASE,
)


def _punctuate(text: str) -> str:
    return text + ("?" if _ASKS.match(text) else "." if len(text) % 5 else "!")


def shorts(rng: random.Random) -> list[str]:
    """All short texts, no two alike; of the first hundred, half are phrases and half are made."""
    s = SLOTS
    said = " ".join(paragraphs(_HERE / "shorts.txt")).replace(" | ", "|").split("|")
    phrases = list(dict.fromkeys(_punctuate(p) for p in said))
    texts = [
        f"{number(n).capitalize()}."
        for n in (*range(101), *range(110, 1000, 37), 1000, 5000, 20000)
    ]
    texts += [
        f"{a}, {b}." for a, b in product(["Hello", "Thanks", "Sorry", "Goodbye", "Yes"], s["name"])
    ]
    texts += [f"{name} {surname}." for name, surname in zip(s["name"], s["surname"], strict=False)]
    texts += [f"{name}." for name in s["name"]] + [f"{city}." for city in s["city"]]
    texts += [f"{day}." for day in s["day"]] + [f"{month}." for month in s["month"]]
    texts += [
        f"{day} {part}." for day, part in product(s["day"], ["morning", "night", "afternoon"])
    ]
    texts += [
        f"{month} {ordinal}." for month in s["month"] for ordinal in rng.sample(s["ordinal"], 6)
    ]
    texts += [f"{time.capitalize()}." for time in s["time"]]
    texts += [
        f"{number(n).capitalize()} {unit}."
        for unit in s["unit"]
        for n in rng.sample(range(2, 99), 6)
    ]
    texts += [f"{food.capitalize()}." for food in s["food"]]
    texts += [f"{a.capitalize()} and {b}." for a, b in zip(s["food"], s["food"][7:], strict=False)]
    texts += [
        f"A {color} {thing}." for color in s["color"][:8] for thing in rng.sample(s["thing"][1:], 6)
    ]
    texts += [f"{n.capitalize()} dollars." for n in rng.sample(s["n"], 30)]
    texts += [
        f"The {adjective} {animal}."
        for adjective in s["adjective"]
        for animal in rng.sample(s["animal"], 3)
    ]
    texts += [f"Where's the {place}?" for place in s["place"]]
    texts += [f"Where is {name}?" for name in s["name"][:30]]
    texts += [f"It's {weather}." for weather in s["weather"]]
    texts += [f"I'm {adjective}." for adjective in s["adjective"][-12:]]
    texts += [f"Call {name}." for name in s["name"][20:]] + [
        f"In the {room}." for room in s["room"]
    ]
    texts += [f"I'm from {city}." for city in s["city"]] + [f"She's a {job}." for job in s["job"]]
    texts += [f"Can you {verb}?" for verb in s["verb"]] + [
        f"Keep {verbing}." for verbing in s["verbing"]
    ]
    texts += [f"{task[0].upper()}{task[1:]}." for task in s["task"]]
    texts = [t.replace("A orange", "An orange").replace("a engineer", "an engineer") for t in texts]
    texts = [t.replace("a electrician", "an electrician") for t in texts]
    made = list(dict.fromkeys(texts))
    rng.shuffle(made)
    brief = [text for text in phrases if len(text.split()) <= 3]
    first = rng.sample(brief, 50) + made[:50]
    rest = [text for text in dict.fromkeys([*phrases, *made]) if text not in first]
    rng.shuffle(rest)
    return first + rest
