"""How numbers are written: digits of any script, decimal and grouping marks of each language."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache
from typing import NamedTuple

from nightingale.text.normalization import languages as by_hand
from nightingale.text.normalization.spelling import N_CACHED, table

_SPACES = re.compile(r"[\s\u00a0\u202f'’]")
_GROUPED = re.compile(r"\d{1,3}(?:[.,]\d{3})+|\d{1,2}(?:,\d{2})+,\d{3}")  # and lakhs
NUMBER = (
    r"(?:(?=\d{1,3}+[\u00a0\u202f'’])"
    r"(?:\d{1,3}(?:[\u00a0\u202f]\d{3}){1,4}(?!\d)|\d{1,3}(?:['’]\d{3}){1,4}(?!\d))|\d+)(?:[.,]\d+)*"
)
SPACED = r"\d{1,3}(?: \d{3}){1,4}(?!\d)(?:[.,]\d+)?|"


class Number(NamedTuple):
    """Digits before and behind the decimal mark; `others` is set where it is no single number."""

    before: str
    after: str = ""
    others: tuple[str, ...] = ()


def number_pattern(language: str) -> str:
    return f"(?:{SPACED if language in by_hand.SPACE_GROUPS else ''}{NUMBER})"


def ascii_digits(text: str) -> str:
    """With digits of any script as 0 to 9."""
    if text.isascii():
        return text
    return "".join(str(unicodedata.digit(c)) if c.isdecimal() else c for c in text)


@lru_cache(N_CACHED)
def parse(text: str, language: str) -> Number:  # noqa: PLR0911
    """Both marks: the last is the decimal one. One mark: the language decides before 3 digits."""
    plain = _SPACES.sub("", ascii_digits(text))
    marks = [c for c in plain if c in ".,"]
    if not marks:
        return Number(plain)
    decimal = str(table()[language]["decimal"])
    last = marks[-1]
    if len(set(marks)) == 2:
        head, _, tail = plain.rpartition(last)
        if _GROUPED.fullmatch(head) and last not in head:
            return Number(head.replace("." if last == "," else ",", ""), tail)
        return Number("", others=tuple(re.split("[.,]", plain)))
    if len(marks) > 1:
        if _GROUPED.fullmatch(plain):
            return Number(plain.replace(last, ""))
        return Number("", others=tuple(plain.split(last)))
    before, after = plain.split(last)
    if last != decimal and len(after) == 3 and len(before) <= 3 and before.strip("0"):
        return Number(before + after)
    return Number(before, after)
