"""Were these the words? Two texts in, edits out.

Spelling is not speech: case, punctuation, digits or words, British or American, "river bank" or
"riverbank" make no difference. Characters are compared without spaces for the same reason.
Knows nothing of sound.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import import_module

from nightingale.errors import MissingPackageError
from nightingale.measure.interval import Interval, bootstrap

MAX_JOINED = 3  # words that may have been written as one

_BRACKETS = re.compile(r"[()\[\]<>{}]")  # the library drops what is inside; a voice reads it
_DOTS = re.compile(r"\.{2,}|…")  # the library leaves a dot, and counts it
_OK = re.compile(r"\bok\b", re.IGNORECASE)
_A_HUNDRED = re.compile(r"\ban? (?=(?:hundred|thousand|million|billion)\b)", re.IGNORECASE)
# A quarter to twelve is written as 11:45, 11.45 or 1145, and a date in many ways.
_COLON = re.compile(r"(?<=\d):(?=\d)")
_POINT = re.compile(r"(?<=\d)\.(?=\d)")
_MONTH = "(january|february|march|april|may|june|july|august|september|october|november|december)"
_DAY_MONTH = re.compile(rf"\b(?:the )?(\d+)(?:st|nd|rd|th)(?: of)? {_MONTH}\b")
_MONTH_DAY = re.compile(rf"\b{_MONTH} (?:the )?(\d+)(?:st|nd|rd|th)\b")

_Cost = tuple[int, int, int, int]  # all edits, then how many of each kind; the least is the best
SUBSTITUTED, DROPPED, ADDED = range(3)


@dataclass(frozen=True, slots=True)
class Edits:
    """What turns the text that was asked for into the one that was heard."""

    n_reference: int  # words or characters that were asked for
    substituted: int = 0
    dropped: int = 0
    added: int = 0

    @property
    def total(self) -> int:
        return self.substituted + self.dropped + self.added

    @property
    def rate(self) -> float:
        """May exceed 1: more can be heard than was asked for."""
        return self.total / max(self.n_reference, 1)

    def __add__(self, other: Edits) -> Edits:
        return Edits(
            self.n_reference + other.n_reference,
            self.substituted + other.substituted,
            self.dropped + other.dropped,
            self.added + other.added,
        )


def normalize(text: str) -> list[str]:
    """The words of an English text, each in its one spelling."""
    text = _OK.sub("okay", _DOTS.sub(" ", text))
    text = _COLON.sub("", _A_HUNDRED.sub("one ", _BRACKETS.sub(" ", text)))
    text = _POINT.sub("", _english()(text))
    return _MONTH_DAY.sub(r"\1 \2", _DAY_MONTH.sub(r"\1 \2", text)).split()


def word_edits(reference: str, heard: str) -> Edits:
    return align(normalize(reference), normalize(heard))


def character_edits(reference: str, heard: str) -> Edits:
    return align("".join(normalize(reference)), "".join(normalize(heard)), max_joined=1)


def align(reference: Sequence[str], heard: Sequence[str], max_joined: int = MAX_JOINED) -> Edits:
    """The fewest edits; up to `max_joined` neighbours on either side may be read as one word."""
    costs: list[list[_Cost]] = [[(j, 0, 0, j) for j in range(len(heard) + 1)]]
    for i, word in enumerate(reference, start=1):
        costs.append([(i, 0, i, 0)])
        above, row = costs[-2:]
        for j, other in enumerate(heard, start=1):
            if word == other:
                row.append(above[j - 1])
                continue
            joined = _compounds(
                reference[max(0, i - max_joined) : i], heard[max(0, j - max_joined) : j]
            )
            row.append(
                min(
                    _edited(above[j - 1], SUBSTITUTED),
                    _edited(above[j], DROPPED),
                    _edited(row[j - 1], ADDED),
                    *(costs[i - n][j - m] for n, m in joined),
                )
            )
    return Edits(len(reference), *costs[-1][-1][1:])


def error_rate(clips: Sequence[Edits]) -> Interval:
    """Edits by words over a whole set: long texts weigh more, as they should."""
    return bootstrap([edits.total for edits in clips], [edits.n_reference for edits in clips])


def _edited(cost: _Cost, kind: int) -> _Cost:
    total, *kinds = cost
    kinds[kind] += 1
    return (total + 1, kinds[0], kinds[1], kinds[2])


def _compounds(reference: Sequence[str], heard: Sequence[str]) -> list[tuple[int, int]]:
    """How many of the last words on either side are the same when written as one."""
    return [
        (n, m)
        for n in range(1, len(reference) + 1)
        for m in range(1, len(heard) + 1)
        if "".join(reference[-n:]) == "".join(heard[-m:])
    ]


@lru_cache(maxsize=1)
def _english() -> Callable[[str], str]:
    try:
        library = import_module("whisper_normalizer.english")
    except ImportError as error:
        raise MissingPackageError(
            "judging words needs whisper-normalizer; "
            "install it with pip install 'nightingale-tts[judge]'"
        ) from error
    normalizer: Callable[[str], str] = library.EnglishTextNormalizer()
    return normalizer
