"""Which tokens of a text make up which of its words. Knows nothing of when they are said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Span:
    """A word, and the first of its tokens."""

    text: str
    first: int


def spans(text: str, tokens: Sequence[int], space: int | None) -> list[Span]:
    """The words of a text among its tokens, which a space token sets apart.

    Where reading changed how many words there are (a number in figures, a script without spaces),
    there is one span for all of them.
    """
    words = text.split()
    ends = [at for at, token in enumerate(tokens) if token == space]
    starts = [1, *(at + 1 for at in ends if at + 1 not in ends)]  # "; " became ",  "
    if space is None or len(starts) != len(words):
        return [Span(" ".join(words), 0)]
    return [Span(word, first) for word, first in zip(words, starts, strict=True)]


def rest(words: Sequence[Span], place: int) -> str:
    """The words from the one that a token belongs to on; nothing if they are not known."""
    if len(words) == 1 and " " in words[0].text:
        return ""
    first = max((at for at, word in enumerate(words) if word.first <= place), default=0)
    return " ".join(word.text for word in words[first:])
