"""Where a text may be cut: into parts that are spoken one after the other, with pauses between.

Text may arrive in pieces, as a language model makes it. Where it is cut depends on the characters
alone and never on how they were handed over; a form feed cuts in any case, and so do the layout
(`structure`) and a change of voice, language or rate (`markup`). Full stops of abbreviations and
ordinals end nothing (`abbreviations`). Takes time in proportion to the text. Knows no tokens.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from nightingale.text.abbreviations import MAX_WORD, FullStop, full_stop, goes_on
from nightingale.text.languages import language_code
from nightingale.text.markup import Mark, Style
from nightingale.text.structure import MARK, STAND_IN, Break, read_breaks

_SENTENCE = frozenset(".!?…。！？؟।")
_CLAUSE = frozenset(",;:—–、，；：،؛")
_WIDE = frozenset("。！？、，；：")  # no space follows these
_GREEK_QUESTION = frozenset(";\u037e")
_CLOSING = frozenset("\"')]}»”’」』）")
_CLOSERS = "".join(_CLOSING)
CUT = "\f"  # whoever writes it wants to hear what stands before it, whole sentence or not


@dataclass(frozen=True, slots=True)
class TextPart:
    """What is spoken at once, and what stands between it and the part before."""

    text: str
    before: Break = Break.NONE
    # Where it is said otherwise than it is written: each written word, and how many words of `text`
    # it is. All of them together are `text`; (): written words are said as they are.
    labels: tuple[tuple[str, int], ...] = ()
    # What mark-up asks for; None: what the request says, and what `before` says.
    voice: str | None = None
    language: str | None = None
    speed: float = 1.0
    pause_ms: int | None = None  # before it; of a part without text, at the end

    @property
    def written(self) -> str:
        """In the words of who wrote it."""
        return " ".join(word for word, _ in self.labels) if self.labels else self.text


@dataclass(frozen=True, slots=True)
class SplitPolicy:
    """How long parts are, in characters: from so many on they may end there."""

    sentence: int  # at the end of a sentence
    clause: int  # at a comma
    limit: int = 300  # anywhere, but best at one of the above


WHOLE = SplitPolicy(sentence=200, clause=250)  # all of the text is known: sentences stay together
EAGER = SplitPolicy(sentence=60, clause=120)  # text is still coming
FIRST = SplitPolicy(sentence=2, clause=20)  # and somebody waits for the first word
SINGLE = SplitPolicy(
    sentence=12, clause=150, limit=200
)  # for a model that knows only single sentences


def split(
    text: str,
    policy: SplitPolicy = WHOLE,
    language: str | None = None,
    marks: deque[Mark] | None = None,
) -> list[TextPart]:
    """A text that is known: if WHOLE, each paragraph as it is if it is short."""
    return list(split_lazily(text, policy, language, marks))


def split_lazily(
    text: str, policy: SplitPolicy, language: str | None, marks: deque[Mark] | None = None
) -> Iterator[TextPart]:
    """The same, part after part. `marks` are those of the MARKs in it."""
    splitter = _Splitter(policy, policy, language, marks)
    yield from (part for part in splitter.split((text,)) if part)
    if not splitter.has_begun:
        yield TextPart(text.replace(MARK, " "))


def split_stream(
    pieces: Iterable[str],
    policy: SplitPolicy = EAGER,
    language: str | None = None,
    marks: deque[Mark] | None = None,
) -> Iterator[TextPart | None]:
    """A text that is still being made: each part as soon as its end is known.

    An empty piece says that nothing has come yet, and is handed on as None.
    """
    return _Splitter(FIRST, policy, language, marks).split(pieces)


class _Splitter:
    """The characters of the part that is being read, and where in it somebody would stop."""

    def __init__(
        self,
        first: SplitPolicy,
        later: SplitPolicy,
        language: str | None,
        marks: deque[Mark] | None,
    ) -> None:
        self._first, self._later, self._language = first, later, language
        self._asked = language  # by the request
        self._policy = first
        self._before = Break.NONE  # stands before the part that is being read
        self.has_begun = False  # there was a part before it
        self._marks, self._style = marks if marks is not None else deque[Mark](), Style()
        self._pause_ms: int | None = None  # that was asked for before it
        self._is_behind_mark = False  # and nothing was read since
        self._open()

    def _open(self) -> None:
        self._held = ""
        self._stops: list[Break | None] = []  # the kind of stop that ends right before each place
        self._pending: Break | None = None  # what the last mark is, if this is its end
        self._is_wide = False  # and no space need follow it
        self._is_undecided = False  # the last mark may be the end of a sentence, or not
        self._undecided_at = self._decided_at = 0  # such an end, before and after the next letter
        self._word_at = self._word_before_at = 0  # where the last word begins, and the one before

    def split(self, pieces: Iterable[str]) -> Iterator[TextPart | None]:
        for item in read_breaks(c for piece in pieces for c in piece or ("",)):
            if isinstance(item, Break):
                yield from self._end_block(item)
            elif not item:
                yield None
            elif item == CUT:
                yield from self._cut(len(self._held), Break.SENTENCE)
                self._policy = self._first
            elif item == MARK:
                yield from self._cut(len(self._held), self._kind_here())
                self._follow(self._marks.popleft())
            elif self._held or not (item.isspace() or self._is_loose(item)):
                self._is_behind_mark = False
                self._read(item)
                if at := self._end():
                    yield from self._cut(at, self._stops[at] or Break.CLAUSE)
        yield from self._cut(len(self._held), Break.SENTENCE)
        if self._pause_ms is not None and self.has_begun:
            yield TextPart("", pause_ms=self._pause_ms)

    def _follow(self, mark: Mark) -> None:
        self._style, self._is_behind_mark = mark.style, True
        self._language = language_code(mark.style.language) if mark.style.language else self._asked
        if mark.pause_ms is not None:
            self._pause_ms = (self._pause_ms or 0) + mark.pause_ms
        if self.has_begun:
            self._before = max(self._before, mark.kind)

    def _kind_here(self) -> Break:
        """What stands behind the characters so far, if they are all."""
        last = self._held.rstrip().rstrip(_CLOSERS)[-1:]
        return Break.SENTENCE if last in _SENTENCE else Break.CLAUSE

    def _is_loose(self, character: str) -> bool:
        """Punctuation behind a tag belongs to what stands before it."""
        return self._is_behind_mark and character in _SENTENCE | _CLAUSE

    def _end_block(self, found: Break) -> Iterator[TextPart]:
        is_rule = bool(self._held) and not _is_speakable(self._held)  # such as * * *
        yield from self._cut(len(self._held), Break.HEADING if is_rule else found)

    def _cut(self, at: int, kind: Break) -> Iterator[TextPart]:
        """The part up to a place; what is behind it begins the next one."""
        text, rest = self._held[:at], self._held[at:].lstrip()
        if _is_speakable(text):
            style = self._style
            yield TextPart(
                text.strip(), self._before, (), style.voice, style.language, style.speed,
                self._pause_ms,
            )  # fmt: skip
            self._before, self._policy, self.has_begun = kind, self._later, True
            self._pause_ms = None
        elif self.has_begun:
            self._before = max(self._before, kind)
        self._open()
        for character in rest:
            self._read(character)

    def _read(self, character: str) -> None:
        self._decided_at = 0
        if self._undecided_at and not character.isspace():
            self._decide(character)
        if character.isalnum() and not self._pending:  # most characters: spares the time
            self._stops.append(None)
            self._held += character
            return
        is_closing, is_space = character in _CLOSING, character.isspace()
        is_apart = is_space or (self._is_wide and not is_closing)
        is_undecided = self._is_undecided and is_apart
        self._stops.append(self._pending if is_apart and not is_undecided else None)
        if is_undecided:
            self._undecided_at = len(self._held)
        if not is_closing:
            self._is_undecided = False
            self._pending, self._is_wide = self._stop(character), character in _WIDE
        if is_space:
            self._word_before_at, self._word_at = self._word_at, len(self._held) + 1
        self._held += character

    def _stop(self, mark: str) -> Break | None:
        if mark in _GREEK_QUESTION and self._language == "el":
            return Break.SENTENCE
        if mark in _CLAUSE:
            return Break.CLAUSE
        if mark not in _SENTENCE:
            return None
        kind = self._full_stop() if mark == "." else FullStop.END
        self._is_undecided = kind is FullStop.UNDECIDED
        return None if kind is FullStop.ABBREVIATION else Break.SENTENCE

    def _full_stop(self) -> FullStop:
        """What a full stop here would be: Dr., U.K., 1. Milk"""
        word = self._held[self._word_at : self._word_at + MAX_WORD + 1].lstrip("([{\"'«“‘„¿¡")
        if not word[:1].isalnum() or len(word) > MAX_WORD:
            return FullStop.END
        if word.isdigit() and self._word_at == 0:
            return FullStop.ABBREVIATION
        n_before = min(self._word_at - self._word_before_at, MAX_WORD + 1)
        before = self._held[self._word_before_at : self._word_before_at + n_before]
        return full_stop(word, before.strip(), self._language)

    def _decide(self, character: str) -> None:
        """The first character behind an undecided full stop has come."""
        if not goes_on(character):
            self._stops[self._undecided_at] = Break.SENTENCE
            self._decided_at = self._undecided_at
        self._undecided_at = 0

    def _end(self) -> int:
        """Where the part ends, now that its last character has come; 0: nowhere yet."""
        n, policy = len(self._held), self._policy
        at = self._decided_at or n - 1
        kind = self._stops[at]
        if not kind and n <= policy.limit:
            return 0
        if kind and policy is not WHOLE:
            least = policy.sentence if kind == Break.SENTENCE else policy.clause
            if at >= least:
                return at
        if n <= policy.limit:
            return 0
        for kind, least in ((Break.SENTENCE, policy.sentence), (Break.CLAUSE, policy.clause)):
            for at in range(policy.limit, least // 2, -1):
                if self._stops[at] == kind:
                    return at
        return min(self._held.rfind(" ", 1, policy.limit + 1) + 1 or policy.limit, n - 1)


def _is_speakable(text: str) -> bool:
    return any(character.isalnum() or character == STAND_IN for character in text)
