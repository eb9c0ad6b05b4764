"""Numbers in words, in 23 languages: whole, ordinal, decimal, digit by digit, and years.

Rules of CLDR, as `unicode-rbnf` carries them. Knows nothing of how numbers are written.
"""

from __future__ import annotations

import json
from decimal import Decimal
from functools import cache, lru_cache
from importlib import resources
from typing import Any

from unicode_rbnf.plural_rules import get_plural_category

from nightingale.text.normalization import languages as by_hand
from nightingale.text.normalization.rules import NumberRules

MAX_DIGITS = 12  # of a number that has a name
N_CACHED = 4096
_N_PLURALS = 100
_ZERO = {"ja": "零", "zh": "零"}
_NORDIC = ("da", "no", "sv")  # "tjugohundra" is said, too, but "tvåtusen" more often
_GENDER_RULES = {"common": ("common", "reale"), None: ()}


@cache
def table() -> dict[str, Any]:
    """What CLDR has for each language: scripts/normalization_table.py made it."""
    text = (resources.files(__package__) / "table.json").read_text(encoding="utf-8")
    loaded: dict[str, Any] = json.loads(text)
    return loaded


@cache
def _rules(language: str) -> NumberRules:
    return NumberRules(language)


def _format(language: str, n: int, rules: str) -> str | None:
    """None: the rules end before this number."""
    try:
        return _rules(language).spell(n, f"spellout-{rules}").strip()
    except KeyError:
        return None


def _has(language: str, rules: str) -> bool:
    return f"spellout-{rules}" in _rules(language)


@cache
def _cardinal_rules(language: str, gender: str | None) -> str:
    for form in _GENDER_RULES.get(gender, (gender,)):
        if _has(language, f"cardinal-{form}"):
            return f"cardinal-{form}"
    rules = by_hand.CARDINAL.get(language)
    if rules is None:
        rules = "cardinal" if _has(language, "cardinal") else "numbering"
    return rules


@lru_cache(N_CACHED)
def cardinal(n: int, language: str, gender: str | None = None) -> str:
    """How many; with the gender of what is counted, where the language minds."""
    return _format(language, n, _cardinal_rules(language, gender)) or digits(str(n), language)


def ordinal(n: int, language: str, form: str = "") -> str | None:
    """Which one in a row; None: there is no rule for it."""
    if language == "pl":
        return _polish_ordinal(n)
    rules = by_hand.ORDINAL_RULES.get(language, "ordinal")
    if form and _has(language, f"ordinal-{form}"):
        rules = f"ordinal-{form}"
    text = _format(language, n, rules)
    return text and by_hand.ORDINAL_PREFIX.get(language, "") + text.removeprefix("wa ")


def _polish_ordinal(n: int) -> str | None:
    """To 31, as days are counted: masculine."""
    names = by_hand.PL_ORDINALS
    if 1 <= n <= 20:
        return names[n - 1]
    return {30: "trzydziesty", 31: "trzydziesty pierwszy"}.get(n) or (
        f"dwudziesty {names[n - 21]}" if 21 <= n <= 29 else None
    )


def day(n: int, language: str, *, is_weak: bool = False) -> str:
    """Of a month, as it is said in a date."""
    form = by_hand.DAY.get(language)
    if language == "de":
        return ordinal(n, "de", "n" if is_weak else "r") or ""
    if language == "pl":
        words = (_polish_ordinal(n) or cardinal(n, "pl")).split()
        return " ".join(w[:-1] + ("iego" if w.endswith("i") else "ego") for w in words)
    if form == "genitive":
        return ordinal(n, language, "neuter-genitive") or ""
    if form == "ordinal" or (language, n) == ("fr", 1):
        return ordinal(n, language) or ""
    return cardinal(n, language, form)


def year(n: int, language: str) -> str:
    if language == "zh":
        return digits(str(n), language)
    plain = language in ("ja", "ko", "ru") or (language in _NORDIC and n >= 2000)
    if plain or not _has(language, "numbering-year"):
        return cardinal(n, language)
    return _format(language, n, "numbering-year") or cardinal(n, language)


def digits(written: str, language: str) -> str:
    """One by one."""
    glue = "" if language in (*by_hand.TIGHT, "ko") else " "
    zero = _ZERO.get(language)
    return glue.join(zero if zero and d == "0" else cardinal(int(d), language) for d in written)


def whole(written: str, language: str, gender: str | None = None) -> str:
    """A number that is written in these digits: long ones, and those that begin with 0, singly."""
    if len(written) > MAX_DIGITS or (len(written) > 1 and written[0] == "0"):
        return digits(written, language)
    return cardinal(int(written), language, gender)


def decimal(before: str, after: str, language: str) -> str:
    glue = "" if language in by_hand.TIGHT else " "
    fraction = digits(after, language)
    if language not in ("en", *by_hand.TIGHT, "ko", "hi", "de", "he", "ar", "ms", "sw"):
        fraction = whole(after, language) if len(after) <= 2 else fraction
    return glue.join([whole(before or "0", language), by_hand.POINT[language], fraction])


def plural(before: str, after: str, language: str) -> str:
    """The category of a count, by the rules of CLDR."""
    if after:
        return _fraction_plural(before, after, language)
    n = int(before or 0)
    if n >= _N_PLURALS:  # the rules look at the last two digits, and at whole millions
        n = 1_000_000 if n % 1_000_000 == 0 else _N_PLURALS + n % _N_PLURALS
    return _plural(n, language)


@cache
def _plural(n: int, language: str) -> str:
    return get_plural_category(language, n)


@lru_cache(N_CACHED)
def _fraction_plural(before: str, after: str, language: str) -> str:
    return get_plural_category(language, Decimal(f"{before or 0}.{after}"))
