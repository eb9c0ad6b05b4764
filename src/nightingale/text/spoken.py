"""Parts of a text as they are said: figures, dates, units and abbreviations as words.

A part that becomes too long by it is cut once more, between written words.
"""

from __future__ import annotations

from collections.abc import Iterator

from nightingale.core import Pronunciations
from nightingale.text.normalization import NormalizedText, SpokenWord, composed, normalize_text
from nightingale.text.pronunciation import pronounce
from nightingale.text.split import SINGLE, WHOLE, TextPart, split
from nightingale.text.structure import Break

_LIMIT = WHOLE.limit


def spoken_parts(
    text: str,
    locale: str | None,
    pronunciations: Pronunciations = (),
    *,
    is_single: bool = False,
) -> list[NormalizedText]:
    """What will be said for a text, part by part."""
    parts = split(text, SINGLE if is_single else WHOLE, locale)
    return [_said(part.text, locale, pronunciations) for part in parts]


def _said(text: str, locale: str | None, pronunciations: Pronunciations) -> NormalizedText:
    found = pronounce(text, pronunciations)
    return composed(found, normalize_text(found.spoken, locale))


def spoken_pieces(
    part: TextPart, locale: str | None, pronunciations: Pronunciations = ()
) -> Iterator[TextPart]:
    """The part itself if nothing in it is said otherwise than it is written."""
    found = _said(part.text, locale, pronunciations)
    if not found.replacements:
        yield part
        return
    before = part.before
    for words in _fitting(found.words()):
        counted = ((word.written, len(word.spoken.split())) for word in words)
        labels = tuple((written, n_words) for written, n_words in counted if n_words)
        yield TextPart(" ".join(" ".join(word.spoken for word in words).split()), before, labels)
        before = Break.CLAUSE


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
