"""How a text is laid out: which breaks between its lines are heard as pauses.

A blank line ends a paragraph, a line break inside one is only a space. Headings and list items are
recognised by their marks (`#`, `-`, `*`, `1.`) or, without marks, by being short lines that end
without punctuation. Reads characters one by one, so that text may still be arriving, and looks
ahead no further than the mark of a line. Knows nothing of sentences, models and languages.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from enum import IntEnum

from nightingale.core import SAMPLES_PER_SECOND, Options

_MARK = re.compile(r"(#{1,6}|[-*+•‣–]|\d{1,3}[.)])\s")
_BEGUN_MARK = re.compile(r"#{1,6}|[-*+•‣–]|\d{1,3}[.)]?")  # what may still become one
_MAX_TITLE = 60  # characters of a heading without a mark
_MAX_LINE = 40  # characters of a line that stands for itself, as in a title page or a poem
_CLAUSE_PAUSE_MS = 150  # inside a sentence that is too long for one part
_CLOSING = frozenset(")]\"'”’»")
# Stand-ins of `markup`: surrogates, which no text may hold.
MARK = "\udc00"  # another voice, language or rate, or a pause
STAND_IN = "\udc01"  # something that is said otherwise than it is written


class Break(IntEnum):
    """What stands between two parts of a text, from the shortest pause to the longest."""

    NONE = 0  # the beginning of the text
    CLAUSE = 1  # inside a sentence that was too long for one part
    SENTENCE = 2
    ITEM = 3  # of a list; or a short line of its own
    PARAGRAPH = 4
    HEADING = 5


def pause_samples(options: Options, speed: float = 1.0) -> dict[Break, int]:
    """How long the pause of each kind is, as a request wants it: shorter in faster speech."""
    pauses_ms = {
        Break.NONE: 0,
        Break.CLAUSE: min(_CLAUSE_PAUSE_MS, options.sentence_pause_ms),
        Break.SENTENCE: options.sentence_pause_ms,
        Break.ITEM: options.item_pause_ms,
        Break.PARAGRAPH: options.paragraph_pause_ms,
        Break.HEADING: options.heading_pause_ms,
    }
    n_samples = {kind: ms * SAMPLES_PER_SECOND // 1000 for kind, ms in pauses_ms.items()}
    return {kind: round(n / speed) for kind, n in n_samples.items()}


def read_breaks(characters: Iterable[str]) -> Iterator[str | Break]:
    """The characters, with line breaks as spaces, list and heading marks left out, and a Break
    before the first character behind it. Empty strings and MARK are handed on."""
    return _Lines().read(characters)


class _Lines:
    """Where in a line the reader is, and what the line before it was like."""

    def __init__(self) -> None:
        self._begun: str | None = ""  # the beginning of a line, as far as it may be a mark
        self._n_newlines = 0  # since the last visible character
        self._is_heading = self._is_item = False  # this line has such a mark
        self._n_characters = 0  # of this line so far
        self._last = ""  # visible character of it

    def read(self, characters: Iterable[str]) -> Iterator[str | Break]:
        for character in characters:
            if not character or character == MARK:
                if character and self._begun:
                    yield from self._start_line(self._begun)
                yield character
            elif self._begun is None:
                yield self._read_body(character)
            else:
                yield from self._read_beginning(character)
        if self._begun:
            yield from self._start_line(self._begun)

    def _read_body(self, character: str) -> str:
        if character == "\n":
            self._n_newlines, self._begun = 1, ""
            return " "
        self._n_characters += 1
        if not character.isspace():
            self._last = character
        return character

    def _read_beginning(self, character: str) -> Iterator[str | Break]:
        begun = (self._begun or "") + character
        if begun == "\n":
            self._n_newlines += 1
        elif begun.isspace() and character != "\f":
            pass  # indentation
        elif _BEGUN_MARK.fullmatch(begun):
            self._begun = begun
        else:
            yield from self._start_line(begun)

    def _start_line(self, begun: str) -> Iterator[str | Break]:
        mark = _MARK.match(begun)
        if found := self._break_before(begun, has_mark=mark is not None):
            yield found
        self._begun, self._n_newlines, self._n_characters, self._last = None, 0, 0, ""
        self._is_heading = mark is not None and begun.startswith("#")
        self._is_item = mark is not None and not self._is_heading
        is_silent = mark is not None and not begun[0].isdigit()
        for character in "" if is_silent else begun:
            yield self._read_body(character)

    def _break_before(self, begun: str, *, has_mark: bool) -> Break | None:
        """What stands between this line and the visible one before it, if any does."""
        if not self._n_newlines or not self._last:
            return None
        if self._is_heading or (has_mark and begun.startswith("#")):
            return Break.HEADING
        is_unfinished = self._last.isalnum() or self._last in _CLOSING
        if self._n_newlines > 1:
            is_title = is_unfinished and self._n_characters <= _MAX_TITLE and not self._is_item
            return Break.HEADING if is_title else Break.PARAGRAPH
        is_line = is_unfinished and self._n_characters <= _MAX_LINE and not begun[0].islower()
        return Break.ITEM if has_mark or is_line else None
