"""Mark-up in a text: pauses, voices, languages, speaking rate, and what is said for a word.

    [pause:500ms]  [voice:anna] ... [/voice]  <break time="500ms"/>  <voice name="anna">
    <lang xml:lang="de">  <sub alias="...">  <spell>  <say-as interpret-as="characters">
    <prosody rate="80%">  <speak> <p> <s>

`Markup.read` gives the characters that are left, with stand-ins: `MARK` where something changes,
which `marks` describes in the same order, and `STAND_IN` for what is said otherwise than it is
written, which `substitutions` holds. Tags that are unknown, broken or have no effect are reported
and not read. Takes time in proportion to the text, whatever it holds.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace

from nightingale.core import MAX_SPEED, MIN_SPEED
from nightingale.errors import MarkupError
from nightingale.text.languages import language_code
from nightingale.text.markup.lexer import Lexer, Tag, Token
from nightingale.text.normalization import normalize_text, spell_out
from nightingale.text.normalize import check_text
from nightingale.text.structure import MARK, STAND_IN, Break

OFF = "off"

MAX_TAGS = 50_000
MAX_DEPTH = 32  # elements inside each other
MAX_VOICES = 16  # different ones
MAX_SUBSTITUTED = 1000  # characters of <sub> and <spell>
MAX_PAUSE_MS = 10_000
FREE_PAUSES_MS, PAUSE_MS_PER_CHARACTER = 60_000, 100  # all pauses of a text together

_STRENGTHS_MS = {
    "none": 0, "x-weak": 250, "weak": 500, "medium": 750, "strong": 1000, "x-strong": 1250
}  # fmt: skip
_RATES = {
    "x-slow": 0.5, "slow": 0.75, "medium": 1.0, "default": 1.0, "fast": 1.25, "x-fast": 1.5
}  # fmt: skip
_TIME = re.compile(r"\+?(\d{1,9}(?:\.\d{1,9})?|\.\d{1,9})\s*(ms|s)?", re.IGNORECASE)
_RATE = re.compile(r"([+-]?)(\d{1,4}(?:\.\d{1,4})?)(%?)")
_SPELLED = ("characters", "character", "spell-out", "verbatim", "letters", "digits")
_SURROGATE = re.compile("[\ud800-\udfff]")
_SUBSTITUTING = ("sub", "spell", "say-as")
_SEPARATING = frozenset(  # of HTML: what stands on both sides are two words
    (
        *("br", "p", "div", "hr", "img", "li", "ul", "ol", "dt", "dd", "dl", "tr", "td", "th"),
        *("table", "h1", "h2", "h3", "h4", "h5", "h6", "head", "header", "footer", "section"),
        *("article", "blockquote", "pre", "html", "body", "title"),
    )
)
_STYLING = ("speak", "p", "s", "voice", "[voice", "lang", "prosody")


@dataclass(frozen=True, slots=True)
class Style:
    """How a stretch of the text is spoken; None: as the request says."""

    voice: str | None = None
    language: str | None = None
    speed: float = 1.0


@dataclass(frozen=True, slots=True)
class Mark:
    """From here on; `pause_ms` comes before it, and so does a break."""

    style: Style
    pause_ms: int | None = None
    kind: Break = Break.NONE


@dataclass(frozen=True, slots=True)
class Substitution:
    """What is written, and what is said for it; no alias: character by character."""

    written: str
    alias: str | None = None

    def spoken(self, locale: str | None) -> str:
        if self.alias is None:
            return spell_out(self.written, locale)
        return normalize_text(self.alias, locale).spoken


@dataclass(frozen=True, slots=True)
class _Element:
    name: str
    before: Style  # that holds again behind it


class Markup:
    """One text and its mark-up."""

    def __init__(
        self,
        language: str | None = None,
        sounds: Collection[str] = (),
        on_ignored: Callable[[str], None] = lambda _tag: None,
    ) -> None:
        """`language` of the request; `sounds`: tokens that the model has; `on_ignored` gets each
        tag that is not followed."""
        self._language = language_code(language) if language else None
        self._sounds, self._on_ignored = frozenset(sounds), on_ignored
        self.marks: deque[Mark] = deque()
        self.substitutions: deque[Substitution] = deque()
        self.voices: dict[str, None] = {}  # names, in the order of the text
        self.languages: dict[str, None] = {}
        self.least_pause_ms: int | None = None
        self._style, self._stack = Style(), list[_Element]()
        self._captured: list[str] | None = None  # the text of <sub> or <spell>, so far
        self._alias: str | None = None
        self._n_captured = self._n_tags = self._n_read = self._pauses_ms = 0
        self._lexer = Lexer()

    def read(self, pieces: Iterable[str]) -> Iterator[str]:
        """The text without tags; empty pieces are handed on."""
        for piece in pieces:
            if piece:
                yield from self.feed(piece)
            else:
                yield piece
        yield from self._read(self._lexer.finish())
        while self._stack:
            yield from self._pop()

    def feed(self, piece: str) -> Iterator[str]:
        """One more piece."""
        if _SURROGATE.search(piece):
            check_text(piece)
        return self._read(self._lexer.feed(piece))

    def whole(self, text: str) -> str:
        """The same for a text that is known."""
        return "".join(self.read((text,)))

    def _read(self, tokens: Iterable[Token]) -> Iterator[str]:
        for token in tokens:
            self._n_read += token.end - token.start
            if token.tag is not None:
                yield from self._follow(token.tag)
            elif self._captured is not None:
                self._capture(token.text)
            elif token.text:
                yield token.text

    def _follow(self, tag: Tag) -> Iterator[str]:
        self._n_tags += 1
        if self._n_tags > MAX_TAGS:
            raise MarkupError(f"the text has more than {MAX_TAGS} tags; split it")
        if tag.is_foreign:
            self._ignore(tag)
            if tag.name in _SEPARATING and self._captured is None:
                yield " "
        elif tag.is_closing and tag.name in (element.name for element in self._stack):
            while self._stack[-1].name != tag.name:
                yield from self._pop()
            yield from self._pop()
        elif tag.is_broken or tag.is_closing:
            self._ignore(tag)
        elif self._captured is not None:
            self._ignore(tag)  # no tags inside <sub> and <spell>
        elif tag.name in ("break", "[pause"):
            yield from self._pause(tag)
        elif tag.name.endswith("]"):
            yield from self._sound(tag)
        else:
            yield from self._open(tag)

    def _open(self, tag: Tag) -> Iterator[str]:
        if tag.name == "[voice":  # it ends the one before: scripts seldom close them
            while any(element.name == tag.name for element in self._stack):
                yield from self._pop()
        style = self._styled(tag)
        if style is None or tag.is_empty:
            self._ignore(tag)
        if tag.is_empty or tag.name not in (*_SUBSTITUTING, *_STYLING):
            return
        if len(self._stack) >= MAX_DEPTH:
            raise MarkupError(f"more than {MAX_DEPTH} tags are open inside each other; close some")
        self._stack.append(_Element(tag.name, self._style))
        if tag.name in _SUBSTITUTING and style is not None:
            self._captured, self._n_captured = [], 0
        elif style is not None:
            yield from self._change(style, _break_of(tag.name))

    def _pop(self) -> Iterator[str]:
        element = self._stack.pop()
        if element.name in _SUBSTITUTING and self._captured is not None:
            yield from self._substitute()
        yield from self._change(element.before, _break_of(element.name))

    def _change(self, style: Style, kind: Break = Break.NONE) -> Iterator[str]:
        if style != self._style or kind:
            self._style = style
            self.marks.append(Mark(style, kind=kind))
            yield MARK

    def _styled(self, tag: Tag) -> Style | None:
        """How its content is spoken; None: the tag has no effect."""
        known, style = tag.attributes, self._style
        if tag.name in _SUBSTITUTING:
            self._alias = known.get("alias", "").strip() if tag.name == "sub" else None
            is_spelled = known.get("interpret-as", "").strip().lower() in _SPELLED
            has_effect = {"spell": True, "sub": bool(self._alias), "say-as": is_spelled}[tag.name]
            return style if has_effect else None
        name = known.get("value" if tag.name == "[voice" else "name", "").strip()
        language = known.get("xml:lang", known.get("lang", "")).strip()
        if tag.name in ("voice", "[voice") and name:
            style = replace(style, voice=self._voice(name))
        if language:
            style = replace(style, language=self._language_of(language))
        if tag.name == "prosody":
            return self._at_rate(tag, style)
        is_said = bool(language or (name and tag.name != "lang"))
        is_known = tag.name in ("speak", "p", "s") or (tag.name in _STYLING and is_said)
        return style if is_known else None

    def _at_rate(self, tag: Tag, style: Style) -> Style | None:
        if len(tag.attributes) > ("rate" in tag.attributes):
            self._ignore(tag)  # pitch, volume
        rate = _rate(tag.attributes.get("rate", ""))
        speed = 0.0 if rate is None else style.speed * rate
        return replace(style, speed=speed) if MIN_SPEED <= speed <= MAX_SPEED else None

    def _voice(self, name: str) -> str:
        self.voices[name] = None
        if len(self.voices) > MAX_VOICES:
            raise MarkupError(f"the text names more than {MAX_VOICES} voices; split it")
        return name

    def _language_of(self, written: str) -> str | None:
        if language_code(written) == self._language:
            return None
        self.languages[written] = None
        return written

    def _pause(self, tag: Tag) -> Iterator[str]:
        pause_ms = _pause_ms(tag)
        if pause_ms is None:
            self._ignore(tag)
            return
        self._pauses_ms += pause_ms
        allowed_ms = FREE_PAUSES_MS + PAUSE_MS_PER_CHARACTER * self._n_read
        if pause_ms > MAX_PAUSE_MS:
            raise MarkupError(
                f"a pause of {pause_ms} ms, but one may be at most {MAX_PAUSE_MS} ms long"
            )
        if self._pauses_ms > allowed_ms:
            raise MarkupError(
                f"the pauses so far are {self._pauses_ms / 1e3:g} s long, but together they may "
                f"be at most {allowed_ms / 1e3:g} s: a minute, and 0.1 s for each character"
            )
        known_ms = pause_ms if self.least_pause_ms is None else self.least_pause_ms
        self.least_pause_ms = min(pause_ms, known_ms)
        self.marks.append(Mark(self._style, pause_ms))
        yield MARK

    def _sound(self, tag: Tag) -> Iterator[str]:
        if tag.name in self._sounds:
            yield tag.name
        else:
            self._ignore(tag)

    def _capture(self, text: str) -> None:
        assert self._captured is not None
        self._n_captured += len(text)
        if self._n_captured > MAX_SUBSTITUTED:
            raise MarkupError(
                f"<sub> or <spell> has over {MAX_SUBSTITUTED} characters; is its end missing?"
            )
        self._captured.append(text)

    def _substitute(self) -> Iterator[str]:
        written = " ".join("".join(self._captured or ()).split())
        found = Substitution(written or self._alias or "", self._alias)
        self._captured = None
        if found.written:
            self.substitutions.append(found)
            yield STAND_IN

    def _ignore(self, tag: Tag) -> None:
        if tag.name.startswith("["):
            slash = "[/" if tag.is_closing else "["
            self._on_ignored(f"{slash}{tag.name[1:].rstrip(']')}]")
        else:
            is_end = tag.is_closing and tag.name in (*_SUBSTITUTING, *_STYLING)
            self._on_ignored(f"<{'/' * is_end}{tag.name}>")


def _break_of(name: str) -> Break:
    return {"p": Break.PARAGRAPH, "s": Break.SENTENCE}.get(name, Break.NONE)


def _pause_ms(tag: Tag) -> int | None:
    """None: it is not said how long."""
    written = tag.attributes.get("value" if tag.name == "[pause" else "time")
    if written is None:
        strength = tag.attributes.get("strength", "medium").strip().lower()
        return _STRENGTHS_MS.get(strength)
    found = _TIME.fullmatch(written.strip())
    if found is None or (not found[2] and tag.name == "break"):
        return None
    return round(float(found[1]) * (1 if (found[2] or "s").lower() == "ms" else 1000))


def _rate(written: str) -> float | None:
    plain = written.strip().lower()
    found = _RATE.fullmatch(plain)
    if found is None:
        return _RATES.get(plain)
    number = float(found[2])
    if not found[3]:
        return None if found[1] == "-" else number
    share = number / 100
    return {"": share, "+": 1 + share, "-": 1 - share}[found[1]]
