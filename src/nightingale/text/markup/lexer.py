"""Tags in a text, found while it arrives: tokens, each with its place in the text.

`Lexer.feed` gives what is certain, `finish` the rest; tokens cover the text exactly, and where it
was cut into pieces changes nothing but which tokens of text there are. Outside `<speak>` a tag of
unknown name is one if it is well-formed, and `&` is a character; inside, entities are decoded.
Takes time in proportion to the text. Knows nothing of what tags mean.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from html import unescape

MAX_TAG = 1000  # characters of a tag; what is longer is text
_MAX_BRACKET = 110

# Sounds that models of the family were trained on, each with a token of its own.
SOUNDS = frozenset(
    (
        *("laugh", "laughter", "giggle", "guffaw", "chuckle", "inhale", "exhale", "sigh", "cry"),
        *("bark", "howl", "meow", "singing", "music", "whistle", "humming", "gasp", "groan"),
        *("whisper", "mumble", "sniff", "sneeze", "cough", "snore", "chew", "sip", "kiss"),
        *("clear_throat", "clear throat", "shhh", "shush", "gibberish"),
    )
)
_NAMES = frozenset(
    (
        *("speak", "break", "voice", "lang", "sub", "spell", "say-as", "prosody"),
        *("emphasis", "phoneme", "audio"),  # that people send as well, and nobody follows here
    )
)
_VENDORS = ("mstts:", "amazon:", "google:")

_LETTER = r"[^\W\d_]"
_NAME = re.compile(rf"<(/?)({_LETTER}[\w:.-]{{0,39}})")
_BODY = re.compile(r"""(?:[^<>"']|"[^"<]*"|'[^'<]*')*+""")
_OPEN_QUOTE = re.compile(r"""(?:"[^"<]*|'[^'<]*)\Z""")
_ATTRIBUTE = re.compile(r"""([\w:.-]{1,40})\s*=\s*(?:"([^"<]*)"|'([^'<]*)')""")
_BROKEN = re.compile(
    r"""(?:\s+[\w:.-]{1,40}\s*=\s*(?:"[^"<>]*"|'[^'<>]*'|[^\s<>"'/]{1,80}))+\s*/?"""
)
# Of a tag that nobody knows: `<y and z>` is none, for no attribute has a value.
_WORD = r"\s+[\w:.-]{1,40}+"
_VALUED_WORD = rf"""{_WORD}\s*=\s*(?:"[^"<]*"|'[^'<]*'|[^\s"'<>=`]{{1,200}}+)"""
_VALUES = rf"(?:(?:{_WORD}(?!\s*=)){{0,3}}+{_VALUED_WORD})"
_WELL_FORMED = re.compile(rf"(?:{_VALUES}++(?:{_WORD}){{0,3}}\s*/?|(?:{_WORD}){{0,3}}\s*/|\s*)>")
_BEGUN = re.compile(rf"""{_VALUES}*+(?:{_WORD}){{0,4}}(?:\s*=\s*(?:"[^"<]*|'[^'<]*)?)?\s*/?\Z""")
_QUOTED = re.compile(rf"""(?:{_WORD}\s*=\s*(?:"[^"<>]*"|'[^'<>]*'))+\s*/?""")
_SOUND_NAMES = "|".join(map(re.escape, sorted(SOUNDS, key=len, reverse=True)))
_BRACKET = re.compile(
    rf"\[(?:(?P<close>/)(?:voice|pause)|(?P<name>voice|pause)(?::(?P<value>[^\[\]\n]{{0,100}}))?"
    rf"|(?P<sound>{_SOUND_NAMES}))\](?!\()",
    re.IGNORECASE,
)
_BEGINNINGS = ("[pause]", "[pause:", "[voice:", "[/voice]", "[/pause]", *(f"[{s}]" for s in SOUNDS))
_VALUED = ("[pause:", "[voice:")
_BROKEN_BRACKET = re.compile(r"\[(?:voice|pause):[ \t]*[^\s\[\]]{1,100}", re.IGNORECASE)
_ENTITY = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|amp|lt|gt|quot|apos|nbsp);")
_BEGUN_ENTITY = re.compile(r"&(?:#?[0-9A-Za-z]{0,8})?\Z")
_TAGS = "|".join(map(re.escape, (*_NAMES, *_VENDORS)))
_BRACKETS = rf"\[(?=/?(?:voice|pause)|(?:{_SOUND_NAMES})\]|[/A-Za-z _]{{0,13}}\Z)"
_SPECIAL = re.compile(  # where a tag may begin, so that other brackets cost nothing
    rf"<(?=/?(?:{_TAGS}|{_LETTER}[\w:.-]{{0,39}}+(?:[\s/>]|\Z))|\?xml|[/?xml]{{0,4}}\Z)|{_BRACKETS}",
    re.IGNORECASE,
)
_SPECIAL_SSML = re.compile(rf"<(?={_LETTER}|[/!?]|\Z)|[&\]]|{_BRACKETS}", re.IGNORECASE)
_CDATA, _CDATA_END, _XML = "<![CDATA[", "]]>", "<?xml"


@dataclass(frozen=True, slots=True)
class Tag:
    """What stands in a tag. Bracket tags are called `[pause`, `[voice` and `[laugh]`."""

    name: str  # in small letters
    attributes: Mapping[str, str] = field(default_factory=dict)
    is_closing: bool = False
    is_empty: bool = False
    is_broken: bool = False  # it has no end
    is_foreign: bool = False  # of HTML or whatever: an unknown name outside <speak>


@dataclass(frozen=True, slots=True)
class Token:
    """A stretch of the text: characters that are read, or a tag, a comment, a declaration."""

    start: int
    end: int
    text: str = ""
    tag: Tag | None = None


_Found = tuple[int, str, Tag | None]  # where it ends, what is read, what it is


class Lexer:
    """One text."""

    def __init__(self) -> None:
        self._held = ""
        self._n_taken = 0  # characters before those
        self._n_speak = 0  # elements <speak> that are open

    def feed(self, piece: str) -> Iterator[Token]:
        """More of the text."""
        self._held += piece
        return self._take(is_last=False)

    def finish(self) -> Iterator[Token]:
        """Nothing more comes."""
        return self._take(is_last=True)

    def _take(self, *, is_last: bool) -> Iterator[Token]:
        held, before, at = self._held, self._n_taken, 0
        while at < len(held):
            special = (_SPECIAL_SSML if self._n_speak else _SPECIAL).search(held, at)
            place = special.start() if special else len(held)
            if place > at:
                yield Token(before + at, before + place, self._plain(held[at:place]))
                at = place
            if special is None:
                break
            found = self._scan(held, at, is_last=is_last)
            if found is None:
                break
            end, text, tag = found
            if tag is not None and tag.name == "speak" and not tag.is_empty:
                self._n_speak = max(0, self._n_speak + (-1 if tag.is_closing else 1))
            yield Token(before + at, before + end, text, tag)
            at = end
        self._held, self._n_taken = held[at:], before + at

    def _plain(self, text: str) -> str:
        """In XML, lines mean nothing."""
        return text.replace("\n", " ") if self._n_speak else text

    def _scan(self, held: str, at: int, *, is_last: bool) -> _Found | None:
        """What begins at this place; None: that is not known yet."""
        scan: Callable[..., _Found | None] = {
            "<": self._angle, "[": _bracket, "&": _entity, "]": _cdata_end
        }[held[at]]  # fmt: skip
        return scan(held, at, is_last=is_last)

    def _angle(self, held: str, at: int, *, is_last: bool) -> _Found | None:
        marks = ("<!", "<?") if self._n_speak else (_XML,)
        if held.startswith(marks, at):
            return _declaration(held, at, is_last=is_last)
        name = _NAME.match(held, at)
        if name is None:
            is_known = is_last or not any(m.startswith(held[at:]) for m in ("</", *marks))
            return (at + 1, "<", None) if is_known else None
        if name.end() == len(held) and not is_last:
            return None
        if not self._n_speak and not _is_known(name[2].lower()):
            return _foreign(held, at, name, is_last=is_last)
        return _tag(held, at, name, is_last=is_last)


def _is_known(name: str) -> bool:
    return name in _NAMES or name.startswith(_VENDORS)


def _tag(held: str, at: int, name: re.Match[str], *, is_last: bool) -> _Found | None:
    body = _BODY.match(held, name.end(), at + MAX_TAG)
    assert body is not None
    end, closing = body.end(), bool(name[1])
    if held[end : end + 1] == ">":
        written = body[0]
        is_name = not written or written[0] in " \t\r\n/"
        values = {
            found[1].lower(): _ENTITY.sub(_decoded, found[2] if found[3] is None else found[3])
            for found in _ATTRIBUTE.finditer(written)
        }
        is_empty = written.rstrip().endswith("/")
        return end + 1, "", Tag(name[2].lower(), values, closing, is_empty, not is_name)
    is_open = end == len(held) or _OPEN_QUOTE.match(held, end) is not None
    if is_open and not is_last and len(held) - at <= MAX_TAG:
        return None
    broken = _BROKEN.match(held, name.end(), at + MAX_TAG)
    if broken is None:
        return at + 1, "<", None
    return broken.end(), "", Tag(name[2].lower(), is_broken=True)


def _foreign(held: str, at: int, name: re.Match[str], *, is_last: bool) -> _Found | None:
    """Only what can hardly be anything but a tag is one: a < b is not, nor is <3."""
    start, end = name.end(), at + MAX_TAG
    tag = Tag(name[2].lower(), is_closing=bool(name[1]), is_foreign=True)
    if found := _WELL_FORMED.match(held, start, end):
        return found.end(), "", tag
    if not is_last and len(held) <= end and _BEGUN.match(held, start):
        return None
    broken = _QUOTED.match(held, start, end)
    return (broken.end(), "", tag) if broken else (at + 1, "<", None)


def _declaration(held: str, at: int, *, is_last: bool) -> _Found | None:
    """Of XML, a comment, or the beginning of characters that are no mark-up."""
    if held.startswith(_CDATA, at):
        return at + len(_CDATA), "", None
    is_begun = any(mark.startswith(held[at:]) for mark in (_CDATA, "<!--"))
    if is_begun and not is_last:
        return None
    is_comment = held.startswith("<!--", at)
    end = held.find("-->" if is_comment else ">", at)
    if end < 0 and not is_last and (is_comment or len(held) - at <= MAX_TAG):
        return None
    if end < 0 or (end - at > MAX_TAG and not is_comment):
        return (len(held), "", None) if is_comment else (at + 1, "<", None)
    return end + (3 if is_comment else 1), "", None


def _cdata_end(held: str, at: int, *, is_last: bool) -> _Found | None:
    if held.startswith(_CDATA_END, at):
        return at + len(_CDATA_END), "", None
    return None if _CDATA_END.startswith(held[at:]) and not is_last else (at + 1, "]", None)


def _entity(held: str, at: int, *, is_last: bool) -> _Found | None:
    found = _ENTITY.match(held, at)
    if found is None:
        is_open = _BEGUN_ENTITY.match(held, at) is not None
        return None if is_open and not is_last else (at + 1, "&", None)
    return found.end(), _decoded(found), None


def _decoded(entity: re.Match[str]) -> str:
    """One character; what is none is a space."""
    character = unescape(entity[0])
    is_text = len(character) == 1 and character.isprintable()
    return character if is_text else " "


def _bracket(held: str, at: int, *, is_last: bool) -> _Found | None:
    found = _BRACKET.match(held, at)
    if found is not None and (found.end() < len(held) or is_last):
        return _bracket_tag(found)
    begun = held[at : at + _MAX_BRACKET].lower()
    if not is_last and len(held) - at <= _MAX_BRACKET and _may_be_bracket(begun):
        return None
    broken = _BROKEN_BRACKET.match(held, at, at + _MAX_BRACKET)
    if broken is not None and held[broken.end() : broken.end() + 1] != "]":
        return broken.end(), "", Tag(broken[0][:6].lower(), is_broken=True)
    return at + 1, "[", None


def _may_be_bracket(begun: str) -> bool:
    if begun.startswith(_VALUED):
        return not re.search(r"[\[\n]|\].", begun[1:], re.DOTALL)
    return any(word.startswith(begun) for word in _BEGINNINGS)


def _bracket_tag(found: re.Match[str]) -> _Found:
    if found["sound"]:
        return found.end(), "", Tag(found[0].lower())
    if found["close"]:
        return found.end(), "", Tag("[" + found[0][2:-1].lower(), is_closing=True)
    name, value = found["name"].lower(), found["value"]
    if value is None and name == "voice":
        return found.start() + 1, "[", None
    return found.end(), "", Tag(f"[{name}", {} if value is None else {"value": value.strip()})
