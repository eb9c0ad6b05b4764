"""What is said for each kind of written thing that `patterns` finds."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache

from nightingale.text.abbreviations import FullStop, full_stop, goes_on
from nightingale.text.normalization import amounts, spelling
from nightingale.text.normalization import languages as by_hand
from nightingale.text.normalization.spelling import N_CACHED
from nightingale.text.normalization.written import ascii_digits, parse

Reader = Callable[[re.Match[str], str], str | None]  # None: leave it as it is

_ROMAN_VALUES = {"I": 1, "V": 5, "X": 10}
SIGNS = frozenset("-−#")  # of a plain number
_FRACTIONS = {"½": by_hand.HALF, "¼": by_hand.QUARTER, "¾": by_hand.QUARTERS}
_CHARACTERS = {".": "DOT", "/": "SLASH", "-": "HYPHEN", "_": "UNDERSCORE", "@": "AT", "+": "PLUS"}


def character_name(character: str, language: str) -> str:
    """A letter is called as it is written, with a capital; what has no name is left out."""
    if character.isdecimal():
        return spelling.digits(ascii_digits(character), language)
    if character in _CHARACTERS:
        return str(getattr(by_hand, _CHARACTERS[character])[language])
    return character.upper() if character.isalpha() and len(character.upper()) == 1 else ""


def _spell_address(text: str, language: str) -> str:
    """An URL or an e-mail, word for word."""
    words = []
    for part in re.findall(r"[^\W\d_]+|\d+|.", text):
        if part.isdecimal():
            plain = ascii_digits(part)
            is_short = len(plain) <= 4
            words.append((spelling.whole if is_short else spelling.digits)(plain, language))
        elif part.isalpha():
            words.append(part)
        elif part in _CHARACTERS:
            words.append(getattr(by_hand, _CHARACTERS[part])[language])
    return " ".join(words)


def _url(found: re.Match[str], language: str) -> str:
    text = re.sub(r"^https?://(?:www\.)?|^www\.", "", found["url"])
    bare = text.rstrip(".,;:!?/")
    tail = text[len(bare) :].replace("/", "")
    return _spell_address(bare, language) + tail


def _email(found: re.Match[str], language: str) -> str:
    return _spell_address(found["email"], language)


def _phone(found: re.Match[str], language: str) -> str:
    plain = ascii_digits(found["phone"])
    plus = f"{by_hand.PLUS[language]} " if plain.startswith("+") else ""
    groups = re.findall(r"\d+", plain)
    return plus + ", ".join(spelling.digits(group, language) for group in groups)


def _iso_date(found: re.Match[str], language: str) -> str | None:
    return _date(found["iso_d"], found["iso_m"], found["iso_y"], found, language)


def day_first_date(found: re.Match[str]) -> str | None:
    """Of English where days come first."""
    return _local_date(found, "en", "dmy")


def _local_date(found: re.Match[str], language: str, wanted: str | None = None) -> str | None:
    order = wanted or by_hand.DATE_ORDER.get(language, "dmy")
    order = "dmy" if order == "ymd" or "." in found["date"] else order
    first, second, year = re.split("[./]", found["date"])
    day, month = (first, second) if order == "dmy" else (second, first)
    if int(month) > 12 >= int(day):
        day, month = month, day
    return _date(day, month, year, found, language)


def _date(day: str, month: str, year: str, found: re.Match[str], language: str) -> str | None:
    if not (1 <= int(day) <= 31 and 1 <= int(month) <= 12):
        return None
    n_year = int(year) + (2000 if len(year) == 2 else 0)
    return amounts.date(int(day), int(month), n_year, language, is_weak=_is_weak(found))


def _is_weak(found: re.Match[str]) -> bool:
    before = found.string[max(0, found.start() - 12) : found.start()].split()
    return bool(before) and before[-1].lower().lstrip("(\"'„“") in by_hand.DE_WEAK


def _named_date(found: re.Match[str], language: str) -> str | None:
    """A day before (or, in English, behind) the name of a month."""
    n_day = int(found["day"] if found["day"] else found["day_behind"])
    if not 1 <= n_day <= 31:
        return None
    said = spelling.day(n_day, language, is_weak=_is_weak(found))
    name = found["month"] if found["day"] else found["month_before"]
    year = found["year_behind"] if found["day"] is None else found["year"]
    tail = (
        f"{', ' if language == 'en' else ' '}{spelling.year(int(year), language)}" if year else ""
    )
    return (f"{name} {said}" if language == "en" else f"{said} {name}") + tail


def _clock(found: re.Match[str], language: str) -> str:
    hour, minute, *seconds = (int(part) for part in re.split("[:h]", found["clock"]))
    said = amounts.clock(hour, minute, language)
    if seconds and seconds[0]:
        said += " " + (amounts.measure(parse(str(seconds[0]), language), "s", language) or "")
    half = (found["half"] or "").replace(".", "").strip().lower()
    if half:
        said = said.removesuffix(" o'clock") + f" {half[0]} m"
    return said


def _money(found: re.Match[str], language: str) -> str | None:
    sign = found["sign_before"] or found["sign_behind"]
    code = by_hand.SYMBOLS[sign] or by_hand.HOME_CROWN.get(language)
    if sign == "¥" and language == "zh":
        code = "CNY"
    if not code:
        return None
    written = found["amount"] or found["amount_before"]
    sized = found["size"] or found["size_before"] or ""
    magnitude = by_hand.MAGNITUDES.get(language, {}).get(sized.strip(), "")
    said = amounts.money(parse(written, language), code, language, magnitude)
    return _signed(found["money_minus"], said, language)


def _signed(minus: str | None, said: str | None, language: str) -> str | None:
    glue = "" if language in by_hand.TIGHT else " "
    return f"{by_hand.MINUS[language]}{glue}{said}" if minus and said else said


def _measure(found: re.Match[str], language: str) -> str | None:
    unit = found["unit"]
    unit = (
        by_hand.UNIT_ALIASES.get(language, {}).get(unit, unit).replace("％", "%").replace("٪", "%")
    )
    said = amounts.measure(parse(found["measured"], language), unit, language)
    return _signed(found["measure_minus"], said, language)


def _ordinal(found: re.Match[str], language: str) -> str | None:
    groups = found.groupdict()
    plain = next(ascii_digits(groups[g]) for g in ("ordinal", "ordinal_2") if groups.get(g))
    if len(plain) > 6 or plain[0] == "0":
        return None
    mark = by_hand.FEMININE_ORDINAL.get(language)
    form = "feminine" if mark and found[0].rstrip("s").endswith(mark) else ""
    if language == "de":
        form = "n" if _is_weak(found) else ""
    said = spelling.ordinal(int(plain), language, form)
    return f"第{said.removeprefix('第')}" if said and language in by_hand.TIGHT else said


def _range(found: re.Match[str], language: str) -> str | None:
    """The first number and the dash; what follows is read as if it stood alone."""
    left, right = found["from"], found["until"]
    if "-" in found["range"] and not _is_range(left, right):
        return None
    glue = "" if language in by_hand.TIGHT else " "
    is_year = len(left) == 4 and 1100 <= int(left) <= 2099
    said = spelling.year(int(left), language) if is_year else spelling.whole(left, language)
    return f"{said}{glue}{by_hand.TO[language]}{glue}"


def _is_range(left: str, right: str) -> bool:
    return len(left) <= 4 and len(right) <= 4 and int(left) < int(right)


def _fraction(found: re.Match[str], language: str) -> str | None:
    if found["sign"]:
        said = _FRACTIONS[found["sign"]][language]
        lead = found["whole_part"]
        glue = "" if language in by_hand.TIGHT else " "
        if not lead:
            return said
        return glue.join(
            [spelling.whole(ascii_digits(lead), language), by_hand.AND[language], said]
        )
    top, bottom = int(found["top"]), int(found["bottom"])
    named = {(1, 2): by_hand.HALF, (1, 4): by_hand.QUARTER, (3, 4): by_hand.QUARTERS}
    if (top, bottom) in named:
        return named[top, bottom][language]
    numbers = [spelling.cardinal(n, language) for n in (top, bottom)]
    if language == "en" and top < bottom <= 20:
        return f"{numbers[0]} {spelling.ordinal(bottom, 'en')}{'s' * (top > 1)}"
    return f" {by_hand.SLASH[language]} ".join(numbers)


@lru_cache(N_CACHED)
def whole_number(plain: str, language: str, may_be_year: bool) -> str:
    """Ten digits or more are said one by one."""
    if may_be_year and len(plain) == 4 and 1100 <= int(plain) <= 2099:
        return spelling.year(int(plain), language)
    return (spelling.digits if len(plain) >= 10 else spelling.whole)(plain, language)


def _number(found: re.Match[str], language: str) -> str | None:
    sign, minus, written = found.group("hash", "minus", "number")
    plain = ascii_digits(written)
    if plain.isdigit():
        may_be_year = language != "zh" or found.string[found.end() : found.end() + 1] == "年"
        said = whole_number(plain, language, may_be_year and not minus and not sign)
    else:
        said = amounts.number(parse(written, language), language)
    lead = by_hand.NUMBER_SIGN[language] + " " if sign else ""
    return lead + (_signed(minus, said, language) or "")


def signed_number(sign: str, plain: str, language: str) -> str:
    """A whole number behind one of `SIGNS`."""
    said = whole_number(plain, language, False)
    if sign == "#":
        return f"{by_hand.NUMBER_SIGN[language]} {said}"
    return _signed(sign, said, language) or said


def _ruler(found: re.Match[str], language: str) -> str | None:
    name, roman = found["name"], found["roman"]
    if not name[0].isupper() or name.isupper():
        return None
    values = [_ROMAN_VALUES[c] for c in roman]
    n = sum(-v if v < max([*values[i:], 0]) else v for i, v in enumerate(values))
    said = amounts.ruler(n, language) if name.lower() in by_hand.RULER_NAMES else None
    if said is None:
        said = spelling.cardinal(n, language)
    return f"{name} {said}"


def _capitals(found: re.Match[str], _language: str) -> str | None:
    word = found["capitals"]
    text, start, end = found.string, found.start(), found.end()
    beside = text[max(0, start - 24) : start].split()[-1:] + text[end : end + 24].split()[:1]
    is_shouted = any(len(w) > 1 and w.isupper() and w.isalpha() for w in beside)
    if word in by_hand.NOT_SPELLED or is_shouted:
        return None
    return " ".join(word)


def _abbreviation(found: re.Match[str], language: str) -> str:
    written = found["abbreviation"]
    said = by_hand.ABBREVIATIONS[language][written]
    if not written.endswith("."):
        return said
    rest = found.string[found.end() : found.end() + 8]
    following = rest.lstrip()
    word = written.rstrip(".").split()[-1]
    may_end = full_stop(word, "", language) is not FullStop.ABBREVIATION
    is_end = not following or (may_end and rest[:1].isspace() and not goes_on(following[0]))
    return said + "." * is_end


def _rest(found: re.Match[str], language: str, _may_be_year: bool = False) -> str:
    """Figures inside a word: MP3, 3D."""
    said = _inner_number(found[0], language)
    if language in by_hand.TIGHT:
        return said
    text, (start, end) = found.string, found.span()
    before, behind = text[start - 1 : start].isalpha(), text[end : end + 1].isalpha()
    return f"{' ' * before}{said}{' ' * behind}"


@lru_cache(N_CACHED)
def _inner_number(written: str, language: str) -> str:
    plain = ascii_digits(written)
    if len(plain) > 4 and plain.isdigit():
        return spelling.digits(plain, language)
    return amounts.number(parse(plain, language), language)


def _keep(_found: re.Match[str], _language: str) -> None:
    """Mark-up and typed tokens."""


READERS: dict[str, Reader] = {
    "tag": _keep, "url": _url, "email": _email, "phone": _phone, "iso": _iso_date,
    "date": _local_date, "named_date": _named_date, "clock_time": _clock, "money": _money,
    "measure": _measure, "ordinal_number": _ordinal, "range": _range, "fraction": _fraction,
    "plain": _number, "ruler": _ruler, "capital_word": _capitals, "abbreviation": _abbreviation,
    "digits": _rest,
}  # fmt: skip

# What is said depends on what is found, and on nothing beside it.
_ALONE = frozenset(("url", "email", "phone", "clock_time", "money", "measure", "fraction", "ruler"))
_ALONE_BUT_IN = {
    "plain": "zh", "iso": "de", "date": "de", "named_date": "de", "ordinal_number": "de",
}  # fmt: skip
_kept = dict[tuple[Reader, str, str], str | None]()


def read(found: re.Match[str], language: str) -> str | None:
    """None: leave it as it is."""
    kind = found.lastgroup  # the group around all others of a pattern ends last
    assert kind is not None
    reader = READERS[kind]
    if kind not in _ALONE and _ALONE_BUT_IN.get(kind, language) == language:
        return reader(found, language)
    key = reader, language, found[0]
    spoken = _kept.get(key, "")
    if spoken == "":
        if len(_kept) >= N_CACHED:
            _kept.clear()
        spoken = _kept[key] = reader(found, language)
    return spoken


def _lone_number(found: re.Match[str], language: str, may_be_year: bool) -> str:
    return whole_number(found[0], language, may_be_year)


def _lone_fraction(found: re.Match[str], language: str, _may_be_year: bool) -> str:
    return _FRACTIONS[found[0]][language]


# What `trigger` finds and is read without another pattern.
AT_ONCE: dict[str | None, Callable[[re.Match[str], str, bool], str]] = {
    "lone": _lone_number, "digits": _rest, "sign": _lone_fraction,
}  # fmt: skip
