"""Figures, dates, money, units, addresses and abbreviations as they are said, in 23 languages.

`normalize_text` gives the text as it is said, and which stretch of the written text each change
came from; what is not recognised stays as it was. Knows nothing of models and tokens.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import deque
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from nightingale.errors import OptionError
from nightingale.text.languages import language_code
from nightingale.text.normalization import languages as by_hand
from nightingale.text.normalization.patterns import (
    ADDRESS,
    BEGINNING,
    FRACTION_SIGNS,
    INSIDE,
    NO_BEGINNING,
    RUN,
    beginning_before,
    patterns,
    trigger,
)
from nightingale.text.normalization.readers import (
    AT_ONCE,
    SIGNS,
    character_name,
    day_first_date,
    read,
    signed_number,
)

OFF = "off"
_AUTO = ("auto", "on")
LOCALES = frozenset(by_hand.POINT)
DAY_FIRST = "en-GB"  # English where 3/4 is in April; as in Australia, India, Ireland, ...
_DAY_FIRST = re.compile(r"-(?:gb|uk|au|nz|ie|in|za|sg|hk|ng|ke)\b")
_MAX_PASSES = 4
_WORD = re.compile(r"\S+")
_new = tuple.__new__  # of a Replacement, in half the time
_REACH = 96  # characters before a figure, within which what it belongs to begins


class Replacement(NamedTuple):
    """A stretch of the written text, and what is said for it."""

    start: int
    end: int
    spoken: str


@dataclass(frozen=True, slots=True)
class SpokenWord:
    """A written word, or several that are read as one, and how many words are said for it."""

    written: str
    spoken: str


@dataclass(frozen=True, slots=True)
class NormalizedText:
    written: str
    replacements: tuple[Replacement, ...] = ()

    @property
    def spoken(self) -> str:
        return "".join(self.pieces())

    def pieces(self) -> list[str]:
        """What is said, stretch by stretch: those that stay, and those that change."""
        pieces, at = [], 0
        for change in self.replacements:
            pieces += [self.written[at : change.start], change.spoken]
            at = change.end
        return [*pieces, self.written[at:]]

    def words(self) -> list[SpokenWord]:
        """The written words in order; words that were read together stay together."""
        words, changes, at = [], deque(self.replacements), 0
        while found := _WORD.search(self.written, at):
            start, end, spoken = found.start(), found.end(), ""
            begun = start
            while changes and changes[0].start < end:
                change = changes.popleft()
                spoken += self.written[begun : change.start] + change.spoken
                begun = change.end
                last = _WORD.match(self.written, begun)
                end = max(end, begun, last.end() if last else 0)
            spoken += self.written[begun:end]
            words.append(SpokenWord(self.written[start:end], spoken))
            at = end
        return words


def normalization_locale(wanted: str, language: str | None) -> str | None:
    """Whose rules the option `normalization` asks for; None: the text stays as it is."""
    choice = wanted.strip().lower()
    if choice == OFF:
        return None
    if choice not in _AUTO:
        if language_code(choice) not in LOCALES:
            known = ", ".join(sorted(LOCALES))
            raise OptionError(f"there is no normalization {wanted!r}; give auto, off or {known}")
        return _with_region(choice)
    is_known = language is not None and language_code(language) in LOCALES
    return _with_region(language) if language and is_known else None


def _with_region(locale: str) -> str:
    """The code of the language; of English, also whether days come first in a date."""
    code, tag = language_code(locale), locale.strip().lower().replace("_", "-")
    return DAY_FIRST if code == "en" and _DAY_FIRST.search(tag) else code


def normalize_text(text: str, language: str | None) -> NormalizedText:
    """The text as it is said in a language; in one that is not known, as it is.

    Read again until nothing changes: what was read may complete what stands beside it.
    """
    is_day_first = language == DAY_FIRST
    language = "en" if is_day_first else language
    if language not in LOCALES:
        return NormalizedText(text)
    found = _read_once(text, language, is_day_first=is_day_first)
    for _ in range(_MAX_PASSES if found.replacements else 0):
        again = _read_once(found.spoken, language, is_day_first=is_day_first)
        if not again.replacements:
            break
        found = composed(found, again)
    return found


def spell_out(text: str, language: str | None) -> str:
    """Character by character, with the names of digits and signs where the language is known."""
    code = language_code(language) if language else ""
    said = (character_name(c, code) if code in LOCALES else c for c in text)
    return " ".join(name for name in said if name.strip())


def _read_once(text: str, language: str, *, is_day_first: bool) -> NormalizedText:
    changes, first = list[Replacement](), 0
    next_hit, may_be_year = trigger(language).search, language != "zh"
    while hit := next_hit(text, first):
        place, end = hit.span()
        kind, found = hit.lastgroup, None
        if first < place and (first < place - 1 or text[first] not in NO_BEGINNING):
            found = _begun_before(text, first, place, language, kind)
        first = place + 1
        if found is None and kind in AT_ONCE:
            first = end
            said = AT_ONCE[kind](hit, language, may_be_year)
            changes.append(_new(Replacement, (place, end, said)))
            continue
        if isinstance(found, str):
            first = end
            said = signed_number(found, hit[0], language)
            changes.append(_new(Replacement, (place - 1, end, said)))
            continue
        if found is None and (found := _begun_at(hit, language)) is None:
            continue
        found, spoken = _spoken(found, language, is_day_first)
        end = found.end()
        first = max(first, end)
        if spoken and spoken != found[0]:
            changes.append(Replacement(found.start(), end, spoken))
    return NormalizedText(text, tuple(changes))


def _begun_before(
    text: str, first: int, place: int, language: str, kind: str | None
) -> re.Match[str] | str | None:
    """What a figure belongs to may begin in the two words before it; the sign of a plain number."""
    if kind is None or text[place] in FRACTION_SIGNS:  # such a sign may stand in a name
        beginning = BEGINNING
    else:
        is_address = text[place - 1] in RUN and ADDRESS.match(text, place) is not None
        beginning = beginning_before(language, is_address)
    low = place - _REACH
    start = beginning.search(text, first if first > low else low, place)
    if start is None:
        return None
    at = start.start()
    if at < place - 1 and at < (low := _word_before(text, place)):
        start = beginning.search(text, low, place)
    elif kind == "lone" and at == place - 1 and start[0] in SIGNS:
        return None if place > 1 and INSIDE.match(text, place - 2) else start[0]
    known = patterns(language)
    while start is not None:
        pattern = known.letter if start[0].isalpha() else known.figure
        if found := pattern.match(text, start.start()):
            return found
        start = beginning.search(text, start.end(), place)
    return None


def _begun_at(hit: re.Match[str], language: str) -> re.Match[str] | None:
    known, text, place = patterns(language), hit.string, hit.start()
    if hit.lastgroup == "joined":
        return known.joined.match(text, place)
    if hit.lastgroup:
        return known.figure.match(text, place)
    if not BEGINNING.match(text, place):
        return None
    return (known.letter if text[place].isalpha() else known.figure).match(text, place)


def _spoken(
    found: re.Match[str],
    language: str,
    is_day_first: bool,
) -> tuple[re.Match[str], str | None]:
    """What is said; for what turned out to be a plain figure, also that figure."""
    kind = found.lastgroup  # the group around all others of a pattern ends last
    assert kind is not None
    is_date = is_day_first and kind == "date"
    spoken = day_first_date(found) if is_date else read(found, language)
    if spoken is None and kind != "tag":
        plain = patterns(language).plain.match(found.string, found.start())
        if plain is not None:
            return plain, read(plain, language)
    return found, spoken


def composed(first: NormalizedText, second: NormalizedText) -> NormalizedText:
    """What came of the first, read once more; changes that meet become one."""
    known, later, changes, at = first.replacements, second.replacements, list[Replacement](), 0
    shifts = accumulate(len(c.spoken) - (c.end - c.start) for c in known)
    ends = [c.end + shift for c, shift in zip(known, shifts, strict=True)]  # as spoken
    n_later = 0
    while n_later < len(later):
        start, end = later[n_later].start, later[n_later].end
        low = high = bisect_right(ends, start, at)
        n_first, changes[len(changes) :] = n_later, known[at:low]
        while True:  # what overlaps it, and what overlaps that
            if high < len(known) and ends[high] - len(known[high].spoken) < end:
                start, end = min(start, ends[high] - len(known[high].spoken)), max(end, ends[high])
                high += 1
            elif n_later < len(later) and later[n_later].start < end:
                end = max(end, later[n_later].end)
                n_later += 1
            else:
                break
        inside = [
            Replacement(c.start - start, c.end - start, c.spoken) for c in later[n_first:n_later]
        ]
        spoken = NormalizedText(second.written[start:end], tuple(inside)).spoken
        offsets = [known[n - 1].end - ends[n - 1] if n else 0 for n in (low, high)]
        changes.append(Replacement(start + offsets[0], end + offsets[1], spoken))
        at = high
    return NormalizedText(first.written, (*changes, *known[at:]))


def _word_before(text: str, at: int) -> int:
    """Where the word before the one at this place begins; not far away."""
    low = max(0, at - _REACH)
    start = text.rfind(" ", low, at)
    return max(low, text.rfind(" ", low, start) + 1 if start > low else low)
