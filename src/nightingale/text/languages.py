"""The 23 languages of the Multilingual model, and what each needs before its letters become tokens.

Most need nothing. Text arrives here in NFKD form, so Hangul is already taken apart. Chinese has its
own file. Nothing is downloaded; a package is looked for when its language is first spoken.
"""

from __future__ import annotations

import unicodedata
import warnings
from collections.abc import Collection, Mapping
from functools import lru_cache
from importlib import import_module
from types import MappingProxyType
from typing import Any

from nightingale.errors import LanguageError, MissingPackageError

LANGUAGES: Mapping[str, str] = MappingProxyType(
    {
        "ar": "Arabic",
        "da": "Danish",
        "de": "German",
        "el": "Greek",
        "en": "English",
        "es": "Spanish",
        "fi": "Finnish",
        "fr": "French",
        "he": "Hebrew",
        "hi": "Hindi",
        "it": "Italian",
        "ja": "Japanese",
        "ko": "Korean",
        "ms": "Malay",
        "nl": "Dutch",
        "no": "Norwegian",
        "pl": "Polish",
        "pt": "Portuguese",
        "ru": "Russian",
        "sv": "Swedish",
        "sw": "Swahili",
        "tr": "Turkish",
        "zh": "Chinese",
    }
)


class LanguageWarning(UserWarning):
    """A step that this language would profit from is not done; the text is spoken without it."""


def check_language(language: str | None, spoken: Collection[str]) -> str | None:
    """The language's code in small letters; None stays None."""
    if language is None:
        return None
    code = language.lower()
    if code not in spoken:
        known = ", ".join(spoken)
        hint = "" if len(spoken) > 1 else "; for another language take a Multilingual model"
        raise LanguageError(f"this model does not speak {language!r}; it speaks: {known}{hint}")
    return code


def prepare(text: str, language: str | None) -> str:
    """Do what the language needs, for every language but Chinese."""
    match language:
        case "ja":
            return _read_kanji(text)
        case "ko":
            return text.strip()
        case "he":
            warn("Hebrew is read without vowel points; write them into the text where they matter")
        case "ru":
            warn("Russian is read without stress marks; write them into the text where they matter")
    return text


def warn(message: str) -> None:
    """Warn from one fixed place, so that Python shows each message once."""
    warnings.warn(message, LanguageWarning, stacklevel=1)


def _read_kanji(text: str) -> str:
    pieces = (_reading(piece["orig"], piece["hira"]) for piece in _kakasi().convert(text))
    return unicodedata.normalize("NFKD", "".join(pieces))


def _reading(written: str, hiragana: str) -> str:
    if not any("\u4e00" <= character <= "\u9fff" for character in written):
        return written
    # a space keeps は and へ from being taken for the particles of that spelling
    return f" {hiragana}" if hiragana.startswith(("は", "へ")) else hiragana


@lru_cache(maxsize=1)
def _kakasi() -> Any:
    try:
        pykakasi = import_module("pykakasi")
    except ImportError as error:
        raise MissingPackageError(
            "Japanese needs the package pykakasi to read kanji; install it with "
            "pip install 'nightingale-tts[japanese]'"
        ) from error
    return pykakasi.kakasi()
