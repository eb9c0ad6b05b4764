"""The 23 languages of the Multilingual model, and what each needs before its letters become tokens.

Most need nothing. Text arrives here in NFKD form, so Hangul is already taken apart. Chinese has its
own file. Nothing is downloaded; a package is looked for when its language is first spoken.
"""

from __future__ import annotations

import re
import unicodedata
import warnings
from collections.abc import Collection, Mapping
from difflib import get_close_matches
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


# Other names of the same languages: old and narrower codes, and those of three letters.
_ALIASES: Mapping[str, str] = MappingProxyType(
    {
        alias: code
        for code, aliases in {
            "ar": "ara arb",
            "da": "dan",
            "de": "deu ger",
            "el": "ell gre",
            "en": "eng",
            "es": "spa castilian",
            "fi": "fin",
            "fr": "fra fre",
            "he": "heb iw",
            "hi": "hin",
            "it": "ita",
            "ja": "jpn",
            "ko": "kor",
            "ms": "msa may zsm zlm",
            "nl": "nld dut flemish",
            "no": "nor nb nob nn nno bokmål nynorsk",
            "pl": "pol",
            "pt": "por",
            "ru": "rus",
            "sv": "swe",
            "sw": "swa swh kiswahili",
            "tr": "tur",
            "zh": "zho chi cmn mandarin",
        }.items()
        for alias in (*aliases.split(), LANGUAGES[code].lower())
    }
)
_SUBTAGS = re.compile(r"(?P<language>[^\W\d_]+)(?:[-_][a-z0-9]{1,8})*(?:[.@][-\w]*)*")


class LanguageWarning(UserWarning):
    """A step that this language would profit from is not done; the text is spoken without it."""


def check_language(language: str | None, spoken: Collection[str]) -> str | None:
    """The code of two letters; None stays None.

    Taken are codes of two or three letters, locales such as de-AT, zh-Hans-CN and en_US.UTF-8, and
    the language's English name.
    """
    if language is None:
        return None
    code = language_code(language)
    if code not in spoken:
        known = ", ".join(spoken)
        name = f" ({LANGUAGES[code]})" if code in LANGUAGES else _nearest(language)
        hint = "" if len(spoken) > 1 else "; for another language take a Multilingual model"
        raise LanguageError(
            f"this model does not speak {language!r}{name}; it speaks: {known}{hint}"
        )
    return code


def language_code(language: str) -> str:
    """Of a language that may be none of ours."""
    written = language.strip().lower()
    found = _SUBTAGS.fullmatch(written)
    first = found["language"] if found else written
    return _ALIASES.get(first, first)


def _nearest(language: str) -> str:
    names = [*LANGUAGES, *_ALIASES]
    found = get_close_matches(language.strip().lower()[:32], names, 1, cutoff=0.7)
    if not found:
        return ""
    code = language_code(found[0])
    return f" (did you mean {code}, {LANGUAGES[code]}?)"


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


def can_read_kanji(text: str) -> bool:
    """Nothing of it gets lost: pykakasi drops what it does not know, or says the last word twice.

    The text is in NFKD form.
    """
    pieces = _kakasi().convert(text)
    is_whole = "".join(piece["orig"] for piece in pieces) == text
    return is_whole and all(_reading(piece["orig"], piece["hira"]) for piece in pieces)


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
