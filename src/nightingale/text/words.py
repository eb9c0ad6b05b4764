"""Which tokens of a text make up which of its words. Knows nothing of when they are said."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from nightingale.text.split import TextPart
from nightingale.text.structure import Break


@dataclass(frozen=True, slots=True)
class Span:
    """A word as it is written, the first of its tokens, and how many words are said for it."""

    text: str
    first: int
    n_spoken: int = 1


def spans(part: TextPart, tokens: Sequence[int], space: int | None) -> list[Span]:
    """The words of a text among its tokens, which a space token sets apart.

    Where reading changed how many words there are (a script without spaces), there is one span for
    all of them.
    """
    words = part.text.split()
    ends = [at for at, token in enumerate(tokens) if token == space]
    starts = [1, *(at + 1 for at in ends if at + 1 not in ends)]  # "; " became ",  "
    if space is None or len(starts) != len(words):
        return [Span(part.written, 0, len(words))]
    labels = part.labels or tuple((word, 1) for word in words)
    found, at = [], 0
    for written, n_spoken in labels:
        found.append(Span(written, starts[at], n_spoken))
        at += n_spoken
    return found


def rest(part: TextPart, words: Sequence[Span], place: int) -> TextPart | None:
    """The text from the word that a token belongs to on; None if it is not known."""
    if len(words) == 1 and words[0].n_spoken > 1:
        return None
    first = max((at for at, word in enumerate(words) if word.first <= place), default=0)
    n_said = sum(word.n_spoken for word in words[:first])
    text = " ".join(part.text.split()[n_said:])
    labels = part.labels[first:]
    return replace(part, text=text, before=Break.CLAUSE, labels=labels, pause_ms=None)
