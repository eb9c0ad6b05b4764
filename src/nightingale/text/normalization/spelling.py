"""Numbers in words, in 23 languages: whole, ordinal, decimal, digit by digit, and years.

Rules of CLDR, as `unicode-rbnf` carries them. Knows nothing of how numbers are written.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from decimal import Decimal
from functools import cache, lru_cache
from importlib import resources
from typing import Any

from unicode_rbnf import RbnfEngine
from unicode_rbnf.engine import NoRuleForNumberError, RulesetNotFoundError
from unicode_rbnf.plural_rules import get_plural_category

from nightingale.text.normalization import languages as by_hand

MAX_DIGITS = 12  # of a number that has a name
N_CACHED = 4096
_N_PARTS = 1000
_DECIMAL = re.compile(r"\d")
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
def _engine(language: str) -> RbnfEngine:
    """Rules refer to rules for parts of a number; parts below 1,000 are common to many numbers."""
    engine = RbnfEngine.for_language(language)
    spell = engine.iter_format_number

    @cache
    def cached(number: int, rules: str) -> tuple[str, ...]:
        return tuple(spell(number, rules))

    def spelled(number: int, ruleset_name: str, **_tolerance: float) -> Iterable[str]:
        return (cached if number < _N_PARTS else spell)(number, ruleset_name)

    engine.iter_format_number = spelled  # type: ignore[method-assign, assignment]
    return engine


@lru_cache(N_CACHED)
def _format(language: str, n: int, rules: str) -> str | None:
    """None: the rules end before this number."""
    try:
        text = "".join(_engine(language).iter_format_number(n, f"spellout-{rules}"))
    except (NoRuleForNumberError, RulesetNotFoundError):
        return None
    if _DECIMAL.search(text):
        return None
    return text.replace("\u00ad", "").replace("\u200b", "").replace("〇", "零").strip()


def _has(language: str, rules: str) -> bool:
    return f"spellout-{rules}" in _engine(language).rulesets


@lru_cache(N_CACHED)
def cardinal(n: int, language: str, gender: str | None = None) -> str:
    """How many; with the gender of what is counted, where the language minds."""
    for form in _GENDER_RULES.get(gender, (gender,)):
        if _has(language, f"cardinal-{form}"):
            return _format(language, n, f"cardinal-{form}") or digits(str(n), language)
    rules = by_hand.CARDINAL.get(language)
    if rules is None:
        rules = "cardinal" if _has(language, "cardinal") else "numbering"
    return _format(language, n, rules) or digits(str(n), language)


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


@lru_cache(N_CACHED)
def plural(before: str, after: str, language: str) -> str:
    """The category of a count, by the rules of CLDR."""
    number = Decimal(f"{before or 0}.{after}") if after else int(before or 0)
    return get_plural_category(language, number)
