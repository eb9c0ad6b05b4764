"""Chinese: words are set apart, then each character is spelled as its Cangjie code.

The code says how a character is built; those that share a code are distinguished by their place in
the table. Never downloads: a missing table is an error, a missing word separator a warning.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Any

from nightingale.errors import NotPulledError
from nightingale.text.files import corrupt, read_json
from nightingale.text.languages import warn

_TABLE_NAME = "Cangjie5_TC.json"
_MODEL_NAME = "spacy_ontonotes"
_MODEL_FILES = ("features.msgpack", "weights.npz")


def read_table(path: Path | None) -> Mapping[str, str]:
    """Read lines of "character<TAB>code" into {character: its tokens}."""
    if path is None or not path.is_file():
        raise NotPulledError(
            f"Chinese needs the table {path or _TABLE_NAME}, which is not on this machine; "
            "`nightingale pull` fetches it"
        )
    code_of: dict[str, str] = {}
    sharers: dict[str, list[str]] = {}
    try:
        for line in read_json(path):
            character, code = line.split("\t")[:2]
            code_of[character] = code
            sharers.setdefault(code, []).append(character)
    except (AttributeError, TypeError, ValueError) as error:
        raise corrupt(path, "is not a list of 'character<TAB>code' lines") from error
    return {
        character: _tokens(code, sharers[code].index(character))
        for character, code in code_of.items()
    }


def _tokens(code: str, place: int) -> str:
    signs = code + (str(place) if place else "") + "."
    return "".join(f"[cj_{sign}]" for sign in signs)


def spell(text: str, table: Mapping[str, str]) -> str:
    """Replace each character that the table has; kana and rare characters stay as they are."""
    return "".join(table.get(c, c) if unicodedata.category(c) == "Lo" else c for c in text)


def separate_words(text: str) -> str:
    """Put one space between words, if the separator and its model are on this machine."""
    try:
        config = import_module("spacy_pkuseg.config").config
    except ImportError:
        warn(
            "Chinese words are not separated, which costs some naturalness; install the separator "
            "with pip install 'nightingale-tts[chinese]'"
        )
        return text
    model = Path(config.pkuseg_home) / _MODEL_NAME  # PKUSEG_HOME is that package's own variable
    if not all((model / name).is_file() for name in _MODEL_FILES):
        warn(
            f"Chinese words are not separated, because the separator has no model in {model}; "
            'fetch it with python -c "import spacy_pkuseg; spacy_pkuseg.pkuseg()"'
        )
        return text
    return " ".join(_separator(model).cut(text))


@lru_cache(maxsize=1)
def _separator(model: Path) -> Any:
    # given a folder instead of a model's name, it has nothing to download
    return import_module("spacy_pkuseg").pkuseg(str(model))
