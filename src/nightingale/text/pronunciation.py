"""Words that are said otherwise than they are written, as a person wants them.

A file `pronunciations.toml` holds entries:

    [[pronunciation]]
    term = "SQL"
    replacement = "sequel"
    language = "en"     # optional: only in this language
    voice = "anna"      # optional: only by this voice

A term in small letters is found in any case, else as it is written; at word boundaries; of terms
that begin at the same place, the longest counts. Knows nothing of models.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from nightingale.core import Pronunciations
from nightingale.errors import OptionError
from nightingale.text.detection import DETECT
from nightingale.text.languages import language_code
from nightingale.text.normalization import NormalizedText, Replacement

FILE_NAME = "pronunciations.toml"
_MAX_TEXT = 200
_FIELDS = ("term", "replacement", "language", "voice")


@dataclass(frozen=True, slots=True)
class Pronunciation:
    """One entry; None: whatever the language, or the voice."""

    term: str
    replacement: str
    language: str | None = None
    voice: str | None = None


def parse_entries(entries: Any, what: str) -> list[Pronunciation]:
    """From a file or a request; `what` is how a person knows it."""
    if not isinstance(entries, list):
        raise OptionError(f"{what} holds no list of pronunciations")
    return [_entry(entry, f"{what}, entry {n}") for n, entry in enumerate(entries, 1)]


def _entry(entry: Any, what: str) -> Pronunciation:
    if not isinstance(entry, Mapping) or not {*entry} <= {*_FIELDS}:
        raise OptionError(f"{what}: give term, replacement and, if need be, language and voice")
    fields = {name: entry.get(name) for name in _FIELDS}
    for name, value in fields.items():
        is_needed = name in ("term", "replacement")
        if not isinstance(value, str) and (is_needed or value is not None):
            raise OptionError(f"{what}: {name} is {value!r}, but must be a text")
        if value is not None and not 1 <= len(value.strip()) <= _MAX_TEXT:
            raise OptionError(f"{what}: {name} must have 1 to {_MAX_TEXT} characters")
    return Pronunciation(**fields)  # type: ignore[arg-type]


def read_file(file: Path) -> list[Pronunciation]:
    """All entries of a file; none if it is not there."""
    if not file.is_file():
        return []
    try:
        content = tomllib.loads(file.read_text(encoding="utf-8"))
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise OptionError(f"{file} is not TOML: {error}") from error
    return parse_entries(content.get("pronunciation", []), str(file))


def select(
    entries: Iterable[Pronunciation], language: str | None, voice: str | None
) -> Pronunciations:
    """Terms and replacements for one request; later entries, and those of a voice, outdo others.

    Where the language is yet to be detected, those of all languages, each with its own.
    """
    every = list(entries)
    general = [entry for entry in every if entry.voice is None]
    own = [entry for entry in every if entry.voice is not None and entry.voice == voice]
    found = merged(
        (entry.term, entry.replacement, *filter(None, [entry.language]))
        for entry in (*general, *own)
    )
    return found if language == DETECT else in_language(found, language)


def merged(*groups: Iterable[tuple[str, ...]]) -> Pronunciations:
    """Later ones outdo those before, of the same term and language."""
    found: dict[tuple[str, ...], Any] = {}
    for entry in (entry for group in groups for entry in group):
        term_and_language = entry[::2]
        found.pop(term_and_language, None)
        found[term_and_language] = entry
    return tuple(found.values())


def in_language(pronunciations: Pronunciations, language: str | None) -> Pronunciations:
    """Those that hold in it, as pairs."""
    code = language_code(language) if language else None
    fitting = (e for e in pronunciations if len(e) == 2 or language_code(e[2]) == code)
    return tuple({entry[0]: entry[1] for entry in fitting}.items())


def pronounce(text: str, pronunciations: Pronunciations) -> NormalizedText:
    """The text with the terms replaced; pairs that hold in its language."""
    if not pronunciations:
        return NormalizedText(text)
    pattern, said = _compiled(pronunciations)
    changes = []
    for found in pattern.finditer(text):
        spoken = said.get(found[0], said.get(found[0].lower()))
        if spoken and spoken != found[0]:
            changes.append(Replacement(found.start(), found.end(), spoken))
    return NormalizedText(text, tuple(changes))


@lru_cache(64)
def _compiled(pronunciations: Pronunciations) -> tuple[re.Pattern[str], dict[str, str]]:
    said = {entry[0]: entry[1] for entry in pronunciations}
    terms = sorted(said, key=len, reverse=True)
    return re.compile("|".join(map(_bounded, terms))), said


def _bounded(term: str) -> str:
    before = r"(?<!\w)" if term[0].isalnum() else ""
    after = r"(?!\w)" if term[-1].isalnum() else ""
    any_case = "(?i:{})" if term == term.lower() else "(?:{})"
    return before + any_case.format(re.escape(term)) + after
