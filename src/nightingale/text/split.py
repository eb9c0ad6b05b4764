"""Where a text may be cut: into parts that are spoken one after the other.

Text may arrive in pieces, as a language model makes it. Where it is cut depends on the characters
alone and never on how they were handed over; a form feed cuts in any case. Knows nothing of tokens
and languages.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_SENTENCE = frozenset(".!?…。！？؟।")
_CLAUSE = frozenset(",;:—–、，；：،؛")
_WIDE = frozenset("。！？、，；：")  # no space follows these
_CLOSING = frozenset("\"')]}»”’」』）")
CUT = "\f"  # whoever writes it wants to hear what stands before it, whole sentence or not
_ABBREVIATION = 3  # letters before a full stop: Dr., Mrs., St.


@dataclass(frozen=True, slots=True)
class Manner:
    """How long parts are, in characters: from so many on they may end there."""

    sentence: int  # at the end of a sentence
    clause: int  # at a comma
    limit: int = 300  # anywhere, but best at one of the above


WHOLE = Manner(sentence=200, clause=250)  # all of the text is known: sentences stay together
EAGER = Manner(sentence=60, clause=120)  # text is still coming
FIRST = Manner(sentence=2, clause=20)  # and somebody waits for the first word
SINGLE = Manner(sentence=12, clause=150, limit=200)  # for a model that knows only single sentences


def split(text: str, manner: Manner = WHOLE) -> list[str]:
    """A text that is known: if WHOLE, as it is if it is short."""
    return [part for part in _cut((text,), manner, manner) if part] or [text]


def gather(pieces: Iterable[str], manner: Manner = EAGER) -> Iterator[str | None]:
    """A text that is still being made: each part as soon as its end is known.

    An empty piece says that nothing has come yet, and is handed on as None.
    """
    return _cut(pieces, FIRST, manner)


def _cut(pieces: Iterable[str], first: Manner, later: Manner) -> Iterator[str | None]:
    manner, held = first, ""
    for character in (c for piece in pieces for c in piece or ("",)):
        if not character:
            yield None
            continue
        held += character
        at = len(held) if character == CUT else _end(held, manner)
        if at and _is_speakable(held[:at]):
            yield held[:at].strip()
            manner, held = first if character == CUT else later, held[at:].lstrip()
    if _is_speakable(held):
        yield held.strip()


def _end(held: str, manner: Manner) -> int:
    """Where a part ends, now that its last character has come; 0: nowhere yet."""
    n = len(held)
    if manner is WHOLE and n <= manner.limit:
        return 0  # it may be short enough as it is
    if manner is not WHOLE and (kind := _stop_before(held, n - 1)):
        least = manner.sentence if kind == "sentence" else manner.clause
        if n - 1 >= least:
            return n - 1
    if n <= manner.limit:
        return 0
    for kind, least in (("sentence", manner.sentence // 2), ("clause", manner.clause // 2)):
        for at in range(manner.limit, least, -1):
            if _stop_before(held, at) == kind:
                return at
    return held.rfind(" ", 1, manner.limit + 1) + 1 or manner.limit


def _stop_before(held: str, at: int) -> str | None:
    """Which kind of stop, if any, ends right before position `at`."""
    end = at
    while end > 0 and held[end - 1] in _CLOSING:
        end -= 1
    if end == 0:
        return None
    mark, is_apart = held[end - 1], held[at].isspace()
    if not is_apart and mark not in _WIDE:
        return None
    if mark in _CLAUSE:
        return "clause"
    if mark not in _SENTENCE or (mark == "." and _is_abbreviation(held[: end - 1])):
        return None
    return "sentence"


def _is_abbreviation(before: str) -> bool:
    word = before.rsplit(maxsplit=1)[-1] if before.strip() else ""
    return word[:1].isupper() and len(word) <= _ABBREVIATION and word.isalpha()


def _is_speakable(text: str) -> bool:
    return any(character.isalnum() for character in text)
