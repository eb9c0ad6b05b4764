"""Punctuation as the models learned it: rules as data, one function that applies them in order.

The order matters: " ," is mended after ":" and "…" have become commas. Knows nothing of languages
or tokens.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from nightingale.errors import TextError


@dataclass(frozen=True, slots=True)
class Punctuation:
    """What one model family does to punctuation."""

    replacements: tuple[tuple[str, str], ...]  # applied one after the other, each to the whole text
    enders: tuple[str, ...]  # a text that ends otherwise gets a full stop
    capitalizes: bool = True  # the first letter


_REPLACEMENTS = (
    ("...", ", "),
    ("…", ", "),
    (":", ","),
    (" - ", ", "),
    (";", ", "),
    ("—", "-"),
    ("–", "-"),
    (" ,", ","),
    ("“", '"'),
    ("”", '"'),
    ("‘", "'"),
    ("’", "'"),
)
_NOT_IN_TURBO = ("...", " - ", ";")
_ENDERS = (".", "!", "?", "-", ",")

ENGLISH = Punctuation(_REPLACEMENTS, _ENDERS)
MULTILINGUAL = Punctuation(_REPLACEMENTS, (*_ENDERS, "、", "，", "。", "？", "！"))
FULL_CASE = replace(MULTILINGUAL, capitalizes=False)
TURBO = Punctuation(tuple(r for r in _REPLACEMENTS if r[0] not in _NOT_IN_TURBO), _ENDERS)  # + Nano


def normalize(text: str, rules: Punctuation) -> str:
    """Give the text the punctuation that the model knows, and an end."""
    check_text(text)
    if (
        rules.capitalizes and text[0].islower()
    ):  # before the spaces go: a leading space keeps the small letter
        text = text[0].upper() + text[1:]
    text = " ".join(text.split())
    for old, new in rules.replacements:
        text = text.replace(old, new)
    text = text.rstrip(" ")
    return text if text.endswith(rules.enders) else text + "."


def replaced(character: str, rules: Punctuation) -> str:
    """What becomes of one character, wherever it stands."""
    for old, new in rules.replacements:
        if len(old) == 1:
            character = character.replace(old, new)
    return character


def check_text(text: str) -> None:
    """Not empty, and made of whole characters."""
    if not text.strip():
        raise TextError(f"the text is {text!r}: there is nothing to say; give at least one word")
    for place, character in enumerate(text):
        if "\ud800" <= character <= "\udfff":
            raise TextError(
                f"character {place} of the text, U+{ord(character):04X}, is half of a surrogate "
                "pair and no character by itself; decode the text again from its bytes"
            )
