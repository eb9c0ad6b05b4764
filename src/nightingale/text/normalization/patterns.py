# ruff: noqa: E501
"""What in a text is read otherwise than it is written: patterns in a fixed order.

One pass from left to right: at each place the first pattern that fits counts. All repetitions are
bounded, so the time is in proportion to the text. Which group is set says what was found.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from string import ascii_letters, digits
from typing import NamedTuple

from nightingale.text.normalization import languages as by_hand
from nightingale.text.normalization import spelling
from nightingale.text.normalization.written import number_pattern

# No figure begins or ends inside a word of these scripts.
_LETTER = "A-Za-zÀ-ɏͰ-ԯ"
_START, _END = rf"(?<![\d{_LETTER}_])", rf"(?![\d{_LETTER}])"
_DOMAINS = "com|org|net|io|dev|ai|app|edu|gov|eu|de|at|ch|uk|fr|es|it|nl|pl|ru|se|no|dk|fi|pt|br|tr|gr|jp|kr|cn|in|il|my|info"
_LABEL = r"[A-Za-z0-9-]{1,63}+"
_URL = rf"(?:https?://|www\.)[^\s<>\"'“”«»()]{{1,300}}|{_LABEL}(?:\.{_LABEL}){{0,3}}\.(?:{_DOMAINS})\b(?:/[^\s<>\"'()]{{0,200}})?"
_EMAIL = rf"[A-Za-z0-9._%+-]{{1,64}}+@{_LABEL}(?:\.{_LABEL}){{0,4}}\.[A-Za-z]{{2,24}}\b"
_PHONE = r"\+\d(?:[ ()./-]{0,2}\d){6,14}|\(0?\d{2,4}\) ?\d{2,4}(?:[ -]\d{2,4}){1,3}|\d{3}-\d{3}-\d{4}|0\d{1,4}[ /-]\d{2,4}(?:[ -]?\d{2,4}){1,3}"
_CLOCK = r"(?:[01]?\d|2[0-3]):[0-5]\d(?::[0-5]\d)?"
_ROMAN = r"(?:X{0,3}(?:IX|IV|V?I{1,3}|V)|X{1,3})"
FRACTION_SIGNS = "½¼¾"
_CONSONANTS = "BCDFGHJKLMNPQRSTVWXZ"
_CAPS_LATIN = frozenset("da de en es fi fr it ms nl no pl pt sv sw tr".split())  # noqa: SIM905

# A character that a pattern may begin with, and those that none begins with.
BEGINNING = re.compile(r"(?<![A-Za-z])[A-Za-z]|[0-9$#%(+.<_\[-]|[^\s\x00-\x7f]")
ADDRESS = re.compile(  # goes on so behind a figure in it
    rf"[A-Za-z0-9._%+-]{{0,64}}+@|(?:[A-Za-z0-9-]{{0,63}}+\.){{1,4}}(?:{_DOMAINS})\b"
)
NO_BEGINNING = frozenset(" \n\t!\"&'),:;=?@/\\]^`{|}~*")
_DIGITS = r"(?P<digits>\d+(?:\.\d+)*)"
_RUN = "[A-Za-z0-9._%+-]"  # an e-mail begins so
RUN = frozenset(f"{ascii_letters}{digits}._%+-")
INSIDE = re.compile(rf"[\d{_LETTER}_]")  # before a figure in a word


class Patterns(NamedTuple):
    """Of one language: what may begin with a letter, or otherwise."""

    letter: re.Pattern[str]
    figure: re.Pattern[str]
    joined: re.Pattern[str]  # a number before a dash, a slash or a colon
    plain: re.Pattern[str]  # for figures that turned out to be nothing more


@cache
def trigger(language: str) -> re.Pattern[str]:
    """Where something may be. The group says what is known of it: a number that is nothing more, a figure inside a word, a sign of a fraction, a number before a joint, a figure; none: no figure.

    All begin with a set of characters, for which Python's engine has a fast search; soon built, while `patterns` takes a tenth of a second.
    """
    signs, is_latin = FRACTION_SIGNS, language in _CAPS_LATIN
    inside = rf"[\d{_LETTER}_]"
    alone = rf"(?<!{inside}.)(?:(?<=0)|(?<=[1-9])[0-9]{{0,8}}+)(?={_behind_a_lone_number(language)})(?P<lone>)"
    figures = (
        rf"(?<=[\d{signs}])(?:{alone}|(?<={inside}\d)\d*(?:\.\d+)*(?P<digits>)"
        rf"|(?<![{signs}])\d*+(?=[-–/⁄:])(?P<joined>)|(?<=[{signs}])(?<!{inside}.)(?P<sign>)|(?P<figure>))"
    )
    others = ["//(?<=://)", r"ww\.(?<=www\.)"]
    if is_latin:
        others += [f"[{_CONSONANTS}](?<=[{_CONSONANTS}]{{2}})", "[IVX](?<=[IVX]{2})"]
    listed = by_hand.ABBREVIATIONS[language]
    for name in map(re.escape, listed):  # its second letter comes first: most are not it
        rest = name.removeprefix(re.escape(name[0]))
        others.append(rf"{rest}(?<={name})(?<!\w{name})(?!\w)")
    others.append(rf"(?<=[\d{signs}@.])(?:{figures}|(?<=@)|(?<=\.)(?:{_DOMAINS})\b)")
    capitals = f"{_CONSONANTS}IVX" if is_latin else ""
    firsts = re.escape("".join({name[0] for name in listed}))
    return re.compile(rf"[\d{signs}@:w.{capitals}{firsts}](?:{'|'.join(others)})", re.S)


def _behind_a_lone_number(language: str) -> str:
    """What follows a whole number that no pattern but `plain` fits."""
    words = [*_units(language), *by_hand.SYMBOLS, *by_hand.MAGNITUDES.get(language, {})]
    parts = "".join(c for c in by_hand.ORDINAL[language] or "" if not c.isascii())
    joints = parts + "".join(word[0] for word in words) + by_hand.CLOCK_SUFFIX.get(language, "")
    part = (
        re.escape("".join(dict.fromkeys(joints.replace("|", "").replace("?", "") + "年")))
        + rf"\d{FRACTION_SIGNS}.,'’:/⁄–%@\-"
    )
    named = re.escape("".join({m[0] for m in spelling.table()[language]["months"]}) + "oO")
    other = rf"[^\s{_LETTER}+_{part}]"
    return (
        rf"\Z|{other}|[+_](?!{_RUN}{{0,64}}+@)|,(?!\d)|\.(?:\Z|\s\d)|:(?!\d\d|[ae])|/(?!\d)"
        rf"|\s(?:\Z|[\s+_@/:.,'’]|{other}|[0-9]{{1,2}}+(?!\d)|[0-9]{{4}}|(?![{part}{named}])[{_LETTER}])"
    )


@cache
def beginning_before(language: str, is_address: bool) -> re.Pattern[str]:
    """A character before a figure that something may begin with, of a text that ends there: less than `BEGINNING`. An address is a run of characters with the figure in it."""
    firsts = set(_first_letters(language))
    letters = re.escape("".join(c for c in firsts if c.isalpha()))
    signs = {name[0] for name in by_hand.SYMBOLS}
    others = re.escape("".join(c for c in signs if not c.isalpha()) + "<[№")
    run = rf"|(?:(?<![A-Za-z])[A-Za-z]|[._%+-])(?={_RUN}*+\Z)" if is_address else ""
    return re.compile(
        rf"(?:(?<![A-Za-z])|(?![A-Za-z]))[{letters}{others}]|#(?=[-−]?\Z)"
        rf"|[(+](?=\Z)|[-−](?=\Z|[{re.escape(''.join(signs))}]){run}"
    )


def _abbreviations(language: str) -> str:
    names = sorted(by_hand.ABBREVIATIONS[language], key=len, reverse=True)
    return "|".join(map(re.escape, names)) or "(?!)"


def _first_letters(language: str) -> str:
    """Of months, signs of money, ordinals, "No." and abbreviations."""
    words = [*spelling.table()[language]["months"], *by_hand.SYMBOLS, "No.", "wa", "ke-", "第"]
    return "".join({word[0] for word in (*words, *by_hand.ABBREVIATIONS[language])})


def _units(language: str) -> list[str]:
    return [*spelling.table()["en"]["units"], *by_hand.UNIT_ALIASES.get(language, {}), "％", "٪"]


@cache
def patterns(language: str) -> Patterns:
    """Built once for each language, when its first figure is read."""
    number = number_pattern(language)
    plain = (
        rf"(?P<plain>(?P<hash>#|№ ?|No\. (?=\d))?(?P<minus>[-−](?=\d))?(?P<number>{number})){_END}"
    )
    tag = r"(?P<tag>\[[^\[\]\n]{1,80}\]|<[^<>\n]{1,200}>)"
    email, url = f"(?P<email>{_EMAIL})", f"(?P<url>{_URL})"
    named, money, ordinals = _named_dates(language), _moneys(language, number), _ordinals(language)
    address = rf"(?={_RUN}{{1,64}}+@){email}|(?={_LABEL}[.:]){url}"
    before = [
        rf"(?<!\+)(?P<phone>{_PHONE}){_END}",
        rf"(?P<iso>(?P<iso_y>\d{{4}})-(?P<iso_m>\d\d)-(?P<iso_d>\d\d)){_END}",
        rf"(?P<date>\d\d?\.\d\d?\.(?:\d{{4}}|\d\d)|\d\d?/\d\d?/(?:\d{{4}}|\d\d)){_END}",
    ]  # fmt: skip
    clock = _clocks(language)
    behind = [
        *ordinals, r"(?P<range>(?P<from>\d{1,6})\s?[–-]\s?(?=(?P<until>\d{1,6})(?![\d:/-])))",
        rf"(?P<fraction>(?P<whole_part>\d{{1,6}})? ?(?P<sign>[{FRACTION_SIGNS}])"
        rf"|(?P<top>\d{{1,2}})[/⁄](?P<bottom>\d{{1,2}})(?![\d/]){_END})",
        plain,
    ]  # fmt: skip
    short = rf"(?=[+(]|\d{{1,5}}+[-./: hsnrt])(?:{'|'.join([*before, named, clock])})"
    figures = [tag, address, short, money, _measures(language, number), *behind]
    listed = rf"(?P<abbreviation>{_abbreviations(language)})(?!\w)"
    words = "|".join([named, money, *ordinals, plain, listed])
    letters = [email, url, rf"(?=[{re.escape(_first_letters(language))}])(?:{words})"]
    if language in _CAPS_LATIN:
        letters += [
            rf"(?P<ruler>(?P<name>[^\W\d_]{{2,24}}+) (?P<roman>(?=[IVX]{{2,6}}\b){_ROMAN})\b)",
            rf"(?P<capital_word>(?P<capitals>[{_CONSONANTS}]{{2,5}}))(?![{_LETTER}])",
        ]
    either = rf"(?:{_START}(?:{{}})|{_DIGITS})"
    return Patterns(
        re.compile("|".join(letters)),
        re.compile(either.format("|".join(figures))),
        re.compile("|".join([address, *before, clock, *behind])),
        re.compile(either.format(plain)),
    )


def _named_dates(language: str) -> str:
    names = [m for m in spelling.table()[language]["months"] if not m[0].isdigit()]
    if language not in by_hand.DAY or not names:
        return r"(?P<named_date>(?!)(?P<day>)(?P<month>)(?P<year>))"
    months = rf"(?=[{_firsts(names)}])(?:{'|'.join(map(re.escape, names))})"
    year = r"(?:,? (?P<year>1[1-9]\d\d|20\d\d)\b(?!\s?[%€$]))?"
    before = rf"(?P<day>\d{{1,2}})(?:\.|st|nd|rd|th)? (?:of )?(?P<month>{months})\b{year}"
    if language != "en":
        return rf"(?P<named_date>{before})"
    behind = rf"(?P<month_before>{months}) (?P<day_behind>\d{{1,2}})(?:st|nd|rd|th)?\b(?![:.]\d)"
    return rf"(?P<named_date>{before}|{behind}{year.replace('<year>', '<year_behind>')})"


def _clocks(language: str) -> str:
    suffix = by_hand.CLOCK_SUFFIX.get(language, "(?!)")
    half = r"(?P<half> ?[AaPp]\.?[Mm](?:\.|\b))" if language == "en" else "(?P<half>(?!))"
    clock = _CLOCK.replace("):[0", ")[:h][0") if language == "fr" else _CLOCK
    return rf"(?<!:)(?P<clock_time>(?P<clock>{clock})(?![\d:])(?: ?(?:{suffix})(?!\w)|{half})?)"


def _moneys(language: str, number: str) -> str:
    signs = "|".join(re.escape(s) for s in sorted(by_hand.SYMBOLS, key=len, reverse=True))
    sizes = "|".join(map(re.escape, by_hand.MAGNITUDES.get(language, {}))) or "(?!)"
    size = rf"(?: ?(?:{sizes})(?![{_LETTER}]))?"
    sized = size.replace("(?: ?", "(?P<size> ?", 1)
    sized_before = size.replace("(?: ?", "(?P<size_before> ?", 1)
    minus = r"(?P<money_minus>[-−])?"
    first, later = (
        _firsts(by_hand.SYMBOLS),
        _firsts(by_hand.SYMBOLS, by_hand.MAGNITUDES.get(language, {})),
    )
    return (
        rf"{minus}(?P<money>(?=[{first}])(?P<sign_before>{signs}) ?(?P<amount>{number}){sized}"
        rf"|(?=\d)(?P<amount_before>(?>{number}))(?= ?[{later}]){sized_before} ?(?P<sign_behind>{signs})){_END}"
    )


def _firsts(*words: Iterable[str]) -> str:
    """Their first letters, as a set of a pattern. Where it does not fit, none of a long list is tried."""
    return re.escape("".join(sorted({word[0] for some in words for word in some})))


def _measures(language: str, number: str) -> str:
    units = sorted(_units(language), key=len, reverse=True)
    listed = "|".join(map(re.escape, units))
    return rf"(?P<measure>(?P<measure_minus>[-−])?(?P<measured>(?>{number}))(?=[ \u00a0\u202f]?[{_firsts(units)}])[ \u00a0\u202f]?(?P<unit>{listed})){_END}"


def _ordinals(language: str) -> list[str]:
    found = by_hand.ORDINAL[language]
    if not found:
        return []
    return [rf"(?P<ordinal_number>{found.replace('(', '(?P<ordinal>', 1)})"]
