"""Parts of a text as they are said: figures, dates, units and abbreviations as words.

A part that becomes too long by it is cut once more, between written words.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace

from nightingale.core import Pronunciations
from nightingale.text.languages import language_code
from nightingale.text.markup import OFF, Markup, Substitution
from nightingale.text.normalization import (
    NormalizedText,
    Replacement,
    SpokenWord,
    composed,
    normalization_locale,
    normalize_text,
)
from nightingale.text.pronunciation import in_language, pronounce
from nightingale.text.split import SINGLE, WHOLE, TextPart, split
from nightingale.text.structure import STAND_IN, Break

_LIMIT = WHOLE.limit


class SpokenForm:
    """How the parts of one text are said; `substitutions` are those of the stand-ins in them."""

    def __init__(
        self,
        language: str | None = None,
        normalization: str = OFF,
        pronunciations: Pronunciations = (),
        substitutions: deque[Substitution] | None = None,
    ) -> None:
        self._normalization = normalization
        self._pronunciations = in_language(pronunciations, language)
        self._substitutions = deque[Substitution]() if substitutions is None else substitutions
        self._locale = self._locale_of(language)

    def _locale_of(self, language: str | None) -> str | None:
        return normalization_locale(self._normalization, language)

    def normalized(self, part: TextPart) -> NormalizedText:
        """Stand-ins are written as they were, and said as mark-up wants it."""
        locale = self._locale_of(part.language) if part.language else self._locale
        first, *others = part.text.split(STAND_IN)
        found = self._read(first, locale)
        if not others:
            return found
        written, changes = found.written, list(found.replacements)
        for text in others:
            known = self._substitutions.popleft()
            start, n = len(written), len(written) + len(known.written)
            changes.append(Replacement(start, n, known.spoken(locale)))
            found = self._read(text, locale)
            changes += [Replacement(n + c.start, n + c.end, c.spoken) for c in found.replacements]
            written += known.written + text
        return NormalizedText(written, tuple(changes))

    def _read(self, text: str, locale: str | None) -> NormalizedText:
        found = pronounce(text, self._pronunciations)
        return composed(found, normalize_text(found.spoken, locale))

    def pieces(self, part: TextPart) -> Iterator[TextPart]:
        """The part itself if nothing in it is said otherwise than it is written."""
        found = self.normalized(part)
        if not found.replacements:
            yield part
            return
        for words in _fitting(found.words()):
            counted = ((word.written, len(word.spoken.split())) for word in words)
            labels = tuple((written, n_words) for written, n_words in counted if n_words)
            text = " ".join(" ".join(word.spoken for word in words).split())
            yield replace(part, text=text, labels=labels)
            part = replace(part, before=Break.CLAUSE, pause_ms=None)


def spoken_parts(
    text: str,
    language: str | None,
    normalization: str,
    pronunciations: Pronunciations = (),
    *,
    markup: bool = True,
    is_single: bool = False,
    on_ignored: Callable[[str], None] = lambda _tag: None,
) -> list[NormalizedText]:
    """What will be said for a text, part by part."""
    marked = Markup(language, on_ignored=on_ignored)
    left = marked.whole(text) if markup else text
    code = language_code(language) if language else None
    parts = split(left, SINGLE if is_single else WHOLE, code, marked.marks)
    form = SpokenForm(language, normalization, pronunciations, marked.substitutions)
    return [form.normalized(part) for part in parts if part.text]


def _fitting(words: list[SpokenWord]) -> Iterator[list[SpokenWord]]:
    """In pieces that are not longer than a part may be, unless a single word is."""
    piece, n_characters = list[SpokenWord](), 0
    for word in words:
        n = len(word.spoken) + 1
        if piece and n_characters + n > _LIMIT:
            yield piece
            piece, n_characters = [], 0
        piece.append(word)
        n_characters += n
    yield piece
