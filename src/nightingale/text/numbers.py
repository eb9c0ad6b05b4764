"""English numbers in words: for a model that has read words alone.

Amounts, times, years, ordinals, percentages and plain numbers; whatever is longer than a number is
spoken digit by digit. Knows nothing of tokens.
"""

from __future__ import annotations

import re

_ONES = [
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),
    *("eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen"),
    "nineteen",
]
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_GROUPS = ((10**9, "billion"), (10**6, "million"), (10**3, "thousand"))
_ODD_ORDINALS = {
    "one": "first",
    "two": "second",
    "three": "third",
    "five": "fifth",
    "eight": "eighth",
    "nine": "ninth",
    "twelve": "twelfth",
}
_MONEY = {"$": ("dollar", "cent"), "£": ("pound", "penny"), "€": ("euro", "cent")}
_MANY = {"penny": "pence"}
_LONGEST = 12  # digits of a number that has a name ...
_LONGEST_PLAIN = 6  # ... and of one without commas, which may be a telephone's

_WRITTEN = re.compile(
    r"(?P<sign>(?<![\w.])[-−])?"
    r"(?:(?P<money>[$£€])\s?)?"
    r"(?P<whole>\d{1,3}(?:,\d{3})+|\d+)"
    r"(?:(?P<clock>:[0-5]\d\b)|(?P<fraction>\.\d+))?"
    r"(?P<end>st\b|nd\b|rd\b|th\b|\s?%)?"
)


def spell(text: str) -> str:
    """The text with its digits in words."""
    return _WRITTEN.sub(_spell, text)


def stretches(text: str) -> list[tuple[int, int]]:
    """Where `spell` would put words."""
    return [found.span() for found in _WRITTEN.finditer(text)]


def number(n: int) -> str:
    """A whole number, in words."""
    for size, name in _GROUPS:
        if n >= size:
            return f"{number(n // size)} {name}" + (f" {number(n % size)}" if n % size else "")
    if n >= 100:
        return f"{_ONES[n // 100]} hundred" + (f" and {number(n % 100)}" if n % 100 else "")
    if n >= 20:
        return _TENS[n // 10 - 2] + (f"-{_ONES[n % 10]}" if n % 10 else "")
    return _ONES[n]


def ordinal(n: int) -> str:
    """Which one in a row, in words."""
    before, last = re.fullmatch(r"(.*?)([a-z]+)", number(n)).groups()  # type: ignore[union-attr]
    if last in _ODD_ORDINALS:
        return before + _ODD_ORDINALS[last]
    return before + (last[:-1] + "ieth" if last.endswith("y") else last + "th")


def clock(hour: int, minute: int) -> str:
    """A time of day, as it is said."""
    if minute == 0:
        return f"{number(hour)} o'clock"
    return f"{number(hour)} {'oh ' if minute < 10 else ''}{number(minute)}"


def year(n: int) -> str:
    """A year from 1100 to 2099, as it is said."""
    century, rest = divmod(n, 100)
    if n % 1000 < 10:
        return number(n)
    if rest == 0:
        return f"{number(century)} hundred"
    return f"{number(century)} {'oh ' if rest < 10 else ''}{number(rest)}"


def _spell(found: re.Match[str]) -> str:
    digits, end = found["whole"].replace(",", ""), (found["end"] or "").strip()
    is_plain = digits == found["whole"]
    sign = "minus " if found["sign"] else ""
    fraction = (found["fraction"] or "").removeprefix(".")
    if len(digits) > (_LONGEST_PLAIN if is_plain else _LONGEST) or re.match(r"0\d", digits):
        words = _one_by_one(digits)
    elif found["money"]:
        return sign + _amount(int(digits), fraction, found["money"])
    elif found["clock"] and int(digits) < 25:
        return clock(int(digits), int(found["clock"][1:]))
    elif end not in ("", "%"):
        return ordinal(int(digits))
    elif is_plain and not fraction and 1100 <= int(digits) < 2100:
        words = year(int(digits))
    else:
        words = number(int(digits))
    if found["clock"]:
        words += f" {number(int(found['clock'][1:]))}"
    if fraction:
        words += f" point {_one_by_one(fraction)}"
    return sign + words + (" percent" if end == "%" else "")


def _one_by_one(digits: str) -> str:
    return " ".join(_ONES[int(digit)] for digit in digits)


def _amount(n: int, fraction: str, sign: str) -> str:
    unit, part = _MONEY[sign]
    cents = int((fraction + "00")[:2])
    said = [_counted(n, unit)] if n or not cents else []
    if cents:
        said.append(_counted(cents, part))
    return " and ".join(said)


def _counted(n: int, unit: str) -> str:
    return f"{number(n)} {unit if n == 1 else _MANY.get(unit, unit + 's')}"
