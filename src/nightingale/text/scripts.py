"""Writing systems: which one a text is in, and which languages are written in it.

A script is named as Unicode names its letters, in capitals. Knows nothing of models and tokens.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType

LATIN = "LATIN"
_CJK = "CJK"  # Han characters: Chinese, and Japanese kanji
_N_LETTERS = 2000  # of a long text, enough to tell

# Languages that are not written in Latin letters; the first script of each is its own.
_SCRIPTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "ar": ("ARABIC",),
        "el": ("GREEK",),
        "he": ("HEBREW",),
        "hi": ("DEVANAGARI",),
        "ja": ("HIRAGANA", _CJK, "KATAKANA"),
        "ko": ("HANGUL", _CJK),
        "ru": ("CYRILLIC",),
        "zh": (_CJK,),
    }
)
_NAMES = {_CJK: "Chinese or Japanese characters"}


@lru_cache(maxsize=4096)
def script_of(letter: str) -> str:
    """Of one letter; of a character without a name, nothing."""
    name = unicodedata.name(letter, "").removeprefix("FULLWIDTH ").removeprefix("HALFWIDTH ")
    return name.partition(" ")[0].partition("-")[0]  # KATAKANA-HIRAGANA PROLONGED SOUND MARK


def only_script(text: str) -> str | None:
    """The script of all letters of a text; None if there are several, or no letters."""
    scripts = set()
    for letter in (c for c in text[:_N_LETTERS] if c.isalpha()):
        scripts.add(script_of(letter))
        if len(scripts) > 3:
            return None
    if scripts & {"HIRAGANA", "KATAKANA"} and scripts <= set(_SCRIPTS["ja"]):
        return "HIRAGANA"  # kanji and kana together
    return scripts.pop() if len(scripts) == 1 else None


def languages_in(script: str) -> list[str]:
    """Languages that may be written so, Latin ones left out; the most likely first."""
    codes = [code for code, scripts in _SCRIPTS.items() if script in scripts]
    return sorted(codes, key=lambda code: _SCRIPTS[code].index(script))


def contradicts(script: str, language: str) -> bool:
    """This language is not written in these letters."""
    return script not in _SCRIPTS.get(language, (LATIN,))


def script_name(script: str) -> str:
    """For a message."""
    return _NAMES.get(script, script.capitalize())
