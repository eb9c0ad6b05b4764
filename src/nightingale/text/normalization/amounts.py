"""Money, measures, times and dates in words. Knows nothing of how they are found in a text."""

from __future__ import annotations

from functools import lru_cache

from nightingale.text.normalization import languages as by_hand
from nightingale.text.normalization import spelling
from nightingale.text.normalization.spelling import N_CACHED
from nightingale.text.normalization.written import Number

_FEMININE_HOURS = {"1": "heure"}


@lru_cache(N_CACHED)
def number(parsed: Number, language: str, gender: str | None = None) -> str:
    if parsed.others:  # a version, an address, a list
        glue = f" {by_hand.DOT[language]} "
        return glue.join(spelling.whole(part, language) for part in parsed.others if part)
    if parsed.after:
        return spelling.decimal(parsed.before, parsed.after, language)
    return spelling.whole(parsed.before, language, gender)


@lru_cache(N_CACHED)
def money(parsed: Number, code: str, language: str, magnitude: str = "") -> str | None:
    if parsed.others:
        return None
    if magnitude:
        name = by_hand.MONEY_OF.get(language, "") + _currency(code, "other", language)
        return f"{number(parsed, language)} {magnitude} {name}"
    gender = "feminine" if code in by_hand.FEMININE_MONEY.get(language, ()) else _neutral(language)
    before, cents = parsed.before or "0", (parsed.after + "00")[:2]
    has_cents = bool(parsed.after) and len(parsed.after) <= 2 and cents != "00"
    if parsed.after and (len(parsed.after) > 2 or (has_cents and not _says_cents(language))):
        category = spelling.plural(before, parsed.after, language)
        return _counted(number(parsed, language), _currency(code, category, language), language)
    said = spelling.whole(before, language, gender)
    name = _currency(code, spelling.plural(before, "", language), language)
    parts = [_counted(said, name, language)] if int(before) or not has_cents else []
    if has_cents:
        parts.append(_hundredths(int(cents), code, language, is_alone=not parts))
    return by_hand.MONEY_AND.get(language, " ").join(parts)


def _says_cents(language: str) -> bool:
    return language in by_hand.WHOLE_THEN_HUNDREDTHS


def _neutral(language: str) -> str:
    return {"el": "neuter", "sv": "common", "da": "common", "no": "common"}.get(
        language, "masculine"
    )


def _hundredths(n: int, code: str, language: str, *, is_alone: bool) -> str:
    forms = by_hand.HUNDREDTH.get(language, {}).get(code)
    said = spelling.cardinal(n, language)
    if forms:
        return f"{said} {forms[n != 1]}"
    return said if not is_alone else f"{spelling.cardinal(0, language)} {_point(language)} {said}"


def _point(language: str) -> str:
    return by_hand.POINT[language]


def _currency(code: str, category: str, language: str) -> str:
    short = by_hand.SHORT_MONEY.get(language, {}).get(code)
    if short:
        return short[category != "one"]
    names = spelling.table()[language]["money"].get(code, {"other": code})
    return str(names.get(category, names["other"]))


def _counted(said: str, name: str, language: str) -> str:
    if language == "sw":
        return f"{name} {said}"
    return said + ("" if language in by_hand.TIGHT else " ") + name


@lru_cache(N_CACHED)
def measure(parsed: Number, unit: str, language: str) -> str | None:
    """None: CLDR has no name for the unit in this language."""
    if parsed.others:
        return None
    pattern, gender = _unit(unit, parsed, language)
    if pattern is None:
        return None
    return pattern.format(number(parsed, language, gender))


def _unit(unit: str, parsed: Number, language: str) -> tuple[str | None, str | None]:
    if unit == "%" and language in by_hand.PERCENT:
        return by_hand.PERCENT[language], None
    forms = spelling.table()[language]["units"].get(unit, {})
    category = spelling.plural(parsed.before, parsed.after, language)
    pattern = forms.get(category, forms.get("other"))
    if pattern and language in by_hand.TIGHT:
        pattern = pattern.replace(" ", "")
    return pattern, forms.get("gender")


@lru_cache(N_CACHED)
def clock(hour: int, minute: int, language: str) -> str:
    with_minutes, full = by_hand.CLOCK[language]
    said = spelling.cardinal(minute, language)
    zero = "oh" if language == "en" else spelling.cardinal(0, language)
    native = "cardinal-native-attributive" if 1 <= hour <= 12 and language == "ko" else ""
    forms = {
        "h": spelling.cardinal(hour, language),
        "hu": spelling.cardinal(hour, language, "neuter" if hour == 1 else None),
        "hf": spelling.cardinal(hour, language, "feminine"),
        "hn": spelling.cardinal(hour, language, native.removeprefix("cardinal-") or None),
        "m": said,
        "mf": spelling.cardinal(minute, language, "feminine"),
        "m0": f"{zero} {said}" if minute < 10 else said,
        "heure": "heure" if hour < 2 else "heures",
        "hora": "hora" if hour == 1 else "horas",
    }
    return (with_minutes if minute else full).format(**forms)


@lru_cache(N_CACHED)
def date(n_day: int, month: int, year: int | None, language: str, *, is_weak: bool = False) -> str:
    names = spelling.table()[language]["months"]
    forms = {
        "day": spelling.day(n_day, language, is_weak=is_weak),
        "d": spelling.cardinal(n_day, language),
        "m": spelling.cardinal(month, language),
        "month": _month(names[month - 1], month, language),
        "year": "" if year is None else spelling.year(year, language),
    }
    pattern = by_hand.DATE.get(language, "{day} {month} {year}")
    if year is None:
        pattern = pattern.split("{year}")[0] if language in ("en", "es", "pt") else "{day} {month}"
        pattern = pattern.rstrip(", ").removesuffix(" de")
    return pattern.format(**forms).strip()


def _month(name: str, month: int, language: str) -> str:
    return f"{spelling.cardinal(month, language)}월" if language == "ko" else name


def ruler(n: int, language: str) -> str | None:
    """Behind the name of one: the Eighth."""
    said = spelling.ordinal(n, language, "r" if language == "de" else "")
    if language == "de" and said:
        said = said.removesuffix("r")
    if said is None or language not in by_hand.RULERS:
        return None
    return by_hand.RULERS[language].format(
        o=said.capitalize() if language in ("en", "de") else said
    )
