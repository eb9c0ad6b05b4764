"""What a model can read of a text: the rest is left out and reported, never spoken as nonsense.

Each tokenizer says which characters its vocabulary has. Here they are taken out, so that what stays
is properly spaced; a text of which no letter stays is refused. Knows nothing of vocabularies.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple, Protocol

from nightingale.errors import TextError
from nightingale.text.languages import LANGUAGES, check_language, warn
from nightingale.text.scripts import contradicts, languages_in, only_script, script_name
from nightingale.text.split import TextPart
from nightingale.text.spoken import SpokenForm
from nightingale.text.structure import MARK, STAND_IN, Break

MAX_UNSPOKEN = 32  # distinct characters that are reported
_N_SHOWN = 8  # of them, in an error

# Stand-ins for what is taken out, while the rest is mended: surrogates, which no text may hold.
_JOIN, _GAP = "\ud800", "\ud801"  # letters leave nothing behind; symbols part words
_TAKEN_OUT = re.compile(f"[{_JOIN}{_GAP}]+")
_PIECES = re.compile(r"\s+|\S+")
_STOPS = ".,;:!?…。、，；：！？"
_NOT_STOPS = re.compile(f"[^{_STOPS}]")

# Characters that make no sound where they stand: leaving them out loses nothing.
_SILENT_KINDS = frozenset(("Cc", "Cf", "Pd", "Pe", "Pf", "Pi", "Ps", "Zl", "Zp", "Zs"))
_SILENT = frozenset("'\"…。、，；：！？．؟،؛।॥·•¡¿\u200d") | {chr(n) for n in range(0xFE00, 0xFE10)}

_LAYOUT = frozenset(
    " \t\r\n\f#*-+•‣–_=~" + MARK + STAND_IN
)  # marks of lists, headings and rules: never spoken


class Readable(NamedTuple):
    """A text without what the model does not know, and those characters, each once."""

    text: str
    unspoken: list[str]


class Stretches(NamedTuple):
    """Parts of a text, (start, end), that are not judged character by character."""

    known: Collection[tuple[int, int]] = ()  # read as a whole: a typed token, a number
    control: Collection[tuple[int, int]] = ()  # typed control tokens: their ends are taken out


Spell = Callable[[str], str | None]  # a character as it is, as known letters, or None: unknown
Find = Callable[[str], Stretches]


def take_out(text: str, spell: Spell, find: Find = lambda _text: Stretches()) -> Readable:
    """The text without unknown characters; as it is if there are none."""
    unspoken: dict[str, None] = {}
    while True:  # what is taken out may change what its neighbours are read as; seldom, and once
        spelled = {c: c if c.isspace() else spell(c) for c in set(text)}
        stretches = find(text)
        if all(c == s for c, s in spelled.items()) and not stretches.control:
            break
        left = _filter(text, spelled, stretches, unspoken)
        if left == text:
            break
        text = left
    return Readable(text, list(unspoken))


def is_speakable(text: str) -> bool:
    """There is a letter or a digit in it."""
    return any(character.isalnum() for character in text)


def _filter(
    text: str, spelled: Mapping[str, str | None], stretches: Stretches, unspoken: dict[str, None]
) -> str:
    is_known = bytearray(len(text))
    for start, end in stretches.known:
        is_known[start:end] = b"\1" * (end - start)
    ends = {at for start, end in stretches.control for at in (start, end - 1)}
    kept = []
    for at, character in enumerate(text):
        known = character if is_known[at] else spelled[character]
        if known is None or at in ends:
            kept.append(_JOIN if unicodedata.category(character)[0] in "LMC" else _GAP)
            if _is_heard(character):
                unspoken[character] = None
        else:
            kept.append(known)
    left = "".join(kept)
    return _mend(left) if _TAKEN_OUT.search(left) else left


def _is_heard(character: str) -> bool:
    return character not in _SILENT and unicodedata.category(character) not in _SILENT_KINDS


def _mend(text: str) -> str:
    """Words that are empty now go, with the white space on one side; their stops stay."""
    kept: list[str] = []  # white space and words by turns
    space, n_breaks = "", -1
    for piece in _PIECES.findall(text):
        if piece.isspace():
            n_found = len(piece) - piece.count(" ")
            if n_found > n_breaks:  # a paragraph's end outdoes a space
                space, n_breaks = piece, n_found
            continue
        word = _word(piece)
        if word != piece and not is_speakable(word):
            if kept and (stops := _stops(piece)) and kept[-1][-1] not in _STOPS:
                kept[-1] += stops
            continue
        kept += [space, word]
        space, n_breaks = "", -1
    return "".join([*kept, space]).strip(" ")


def _word(piece: str) -> str:
    found = _TAKEN_OUT.search(piece)
    if found is None:
        return piece
    word = _TAKEN_OUT.sub(_between, piece)
    return word.lstrip(_STOPS) if found.start() == 0 else word


def _between(gap: re.Match[str]) -> str:
    text, start, end = gap.string, gap.start(), gap.end()
    before, after = text[max(0, start - 1) : start], text[end : end + 1]
    return " " if _GAP in gap[0] and before.isalnum() and after.isalnum() else ""


def _stops(piece: str) -> str:
    """What ends a clause behind a word that is gone: all there is, or what follows a bracket."""
    parts = _TAKEN_OUT.split(piece)
    return _NOT_STOPS.sub("", parts[-1]) if parts[0] else parts[-1]


class Reads(Protocol):
    """A tokenizer, as far as it is needed here."""

    languages: Collection[str]

    def readable(self, text: str, language: str | None = None) -> Readable:
        """What it can read of a text."""


class Reader:
    """One text on its way to the model: `unspoken` lists what was left out, as it is found."""

    def __init__(
        self,
        tokenizer: Reads,
        language: str | None,
        unspoken: list[str],
        form: SpokenForm | None = None,
    ) -> None:
        self._tokenizer, self._language, self.unspoken = tokenizer, language, unspoken
        self._form = form or SpokenForm()
        self._script: str | None = None  # of the text, or of its first part
        self._before = Break.NONE  # stood before parts that were skipped
        self._pause_ms: int | None = None  # and was asked for there

    def whole(
        self, text: str, split: Callable[[str], Iterable[TextPart]]
    ) -> Iterator[TextPart | None]:
        """The parts of a text that is known; what is left out is known before the first.

        None behind each that was prepared, so that who shares the model with others can let them.
        """
        self._note_script(text)
        given, left = set[str](), list[TextPart]()
        for part in split(text):
            given.update(part.text)
            left += self._left(part)
            yield None
        self._note_dropped(text, given)
        if not any(part.text for part in left):
            raise self._refusal()
        yield from left

    def arriving(
        self,
        pieces: Iterable[str],
        split: Callable[[Iterable[str]], Iterable[TextPart | None]],
    ) -> Iterator[TextPart | None]:
        """The parts of one that is still being written; a part that cannot be read is skipped."""
        seen: dict[str, None] = {}

        def watched() -> Iterator[str]:
            for piece in pieces:
                seen.update(dict.fromkeys(piece))
                yield piece

        has_spoken, given = False, set[str]()
        for part in split(watched()):
            if part is None:
                yield None
                continue
            if not given:
                self._note_script(part.text)
            given.update(part.text)
            for left in self._left(part):
                has_spoken |= bool(left.text)
                yield left
        self._note_dropped("".join(seen), given)
        if not has_spoken and any(not c.isspace() for c in seen):
            raise self._refusal()

    def _left(self, written: TextPart) -> Iterator[TextPart]:
        """Without what cannot be read; the pause before a part of which nothing is left stays."""
        if not written.text:  # a pause at the end
            yield replace(written, pause_ms=(self._pause_ms or 0) + (written.pause_ms or 0))
            return
        for part in self._form.pieces(written):
            before, pause_ms = max(part.before, self._before), part.pause_ms
            if self._pause_ms is not None:
                pause_ms = self._pause_ms + (pause_ms or 0)
            language = part.language or self._language
            if is_speakable(text := self._read(part.text, language)):
                self._before, self._pause_ms = Break.NONE, None
                labels = self._labels(part, text, language)
                yield replace(part, text=text, before=before, labels=labels, pause_ms=pause_ms)
            else:
                self._before, self._pause_ms = before, pause_ms

    def _labels(
        self, part: TextPart, text: str, language: str | None
    ) -> tuple[tuple[str, int], ...]:
        """With the words counted that the model can read."""
        if text == part.text or not part.labels:
            return part.labels if len(text.split()) == len(part.text.split()) else ()
        words, labels, at = part.text.split(), list[tuple[str, int]](), 0
        for written, n_spoken in part.labels:
            said = " ".join(words[at : at + n_spoken])
            at += n_spoken
            left = self._tokenizer.readable(said, language).text if said else ""
            if is_speakable(left):
                labels.append((written, len(left.split())))
        is_whole = sum(n for _, n in labels) == len(text.split())
        return tuple(labels) if is_whole else ((part.written, len(text.split())),)

    def _note_dropped(self, text: str, given: set[str]) -> None:
        """Splitting drops lines without letters: a rule, or a smile behind the last sentence."""
        if dropped := "".join(c for c in dict.fromkeys(text) if c not in given | _LAYOUT):
            self._read(dropped, self._language)

    def _read(self, text: str, language: str | None) -> str:
        found = self._tokenizer.readable(text, language)
        fresh = [c for c in found.unspoken if c not in self.unspoken]
        self.unspoken += fresh[: MAX_UNSPOKEN - len(self.unspoken)]
        return found.text

    def _note_script(self, text: str) -> None:
        """Letters that the language is not written in are read, but hardly as they should be."""
        self._script = script = only_script(text)
        languages = self._tokenizer.languages
        code = check_language(self._language, languages) if len(languages) > 1 else None
        if code and code in LANGUAGES and script and contradicts(script, code):
            warn(f"the text is in {script_name(script)}, but the language is {LANGUAGES[code]}")

    def _refusal(self) -> TextError:
        languages = self._tokenizer.languages
        if not self.unspoken:
            return TextError("there is nothing to say: the text has no letter and no digit")
        known = ", ".join(LANGUAGES.get(code, code) for code in languages)
        shown = " ".join(self.unspoken[:_N_SHOWN])
        more = " …" if len(self.unspoken) > _N_SHOWN else ""
        return TextError(
            f"there is nothing to say that this model can read: it reads {known}, "
            f"and does not know {shown}{more}{self._advice()}"
        )

    def _advice(self) -> str:
        script = self._script
        codes = languages_in(script) if script else []
        if not script or not codes:
            return ""
        wanted = " or ".join(codes[:2])
        can = any(code in self._tokenizer.languages for code in codes)
        first = "" if can else "get the model with `nightingale pull multilingual` and "
        return f"; the text is in {script_name(script)}: {first}give the language {wanted}"
