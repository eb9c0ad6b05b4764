"""Text to ids: `encode(text, language)` for each family of models, built from plain files on disk.

Tokens typed into the text, such as [laughter], count where the file has them. Building one opens
no connection and needs no optional package. Knows nothing of the model that reads the ids.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Protocol

from tokenizers import Tokenizer

from nightingale.errors import LanguageError, TextError
from nightingale.text import chinese, gpt2, letters, numbers
from nightingale.text.files import corrupt, read_text
from nightingale.text.languages import LANGUAGES, check_language, prepare
from nightingale.text.normalize import ENGLISH, MULTILINGUAL, TURBO, normalize

START_OF_TEXT = 255
END_OF_TEXT = 0
SPACE = "[SPACE]"
MAX_TEXT_TOKENS = 2048  # start and end not counted


class EnglishTokenizer:
    """The original English model's: capital letters kept, 704 ids."""

    def __init__(self, json: Path) -> None:
        self._tokenizer = _load(json)
        self.space: int | None = self._tokenizer.token_to_id(SPACE)

    def encode(self, text: str, language: str | None = None) -> list[int]:
        """The ids of one utterance, start and end included."""
        check_language(language, ("en",))
        return _ids(self._tokenizer, normalize(text, ENGLISH))


class FledglingTokenizer(EnglishTokenizer):
    """The small model's: numbers and lone letters in words, none with marks: it read no others."""

    def encode(self, text: str, language: str | None = None) -> list[int]:
        """The ids of one utterance, start and end included."""
        plain = unicodedata.normalize("NFKD", letters.spell(numbers.spell(text)))
        return super().encode("".join(c for c in plain if not unicodedata.combining(c)), language)


class MultilingualTokenizer:
    """The 23-language model's: NFKD, a tag in front, each language's own step between. 2454 ids."""

    def __init__(self, json: Path, cangjie: Path | None = None, lowercase: bool = True) -> None:
        self._tokenizer = _load(json)
        self.space: int | None = self._tokenizer.token_to_id(SPACE)
        self._cangjie = cangjie
        self._lowercase = lowercase

    def encode(self, text: str, language: str | None = None) -> list[int]:
        """The ids of one utterance, start and end included; without a language there is no tag."""
        code = check_language(language, LANGUAGES)
        tag = f"[{code}]" if code else ""
        if tag and self._tokenizer.token_to_id(tag) is None:
            raise LanguageError(f"this model's tokenizer file has no token {tag}")
        text = normalize(text, MULTILINGUAL)
        if self._lowercase:
            text = text.lower()
        text = unicodedata.normalize("NFKD", text)
        if code == "zh":
            text = chinese.spell(chinese.separate_words(text), self._cangjie_table)
        else:
            text = prepare(text, code)
        return _ids(self._tokenizer, tag + text)

    @cached_property
    def _cangjie_table(self) -> Mapping[str, str]:
        return chinese.read_table(self._cangjie)


class Gpt2Tokenizer:
    """Turbo's and Nano's: byte-level, nothing in front and nothing behind, 50276 ids."""

    space: int | None = None  # spaces are parts of other tokens

    def __init__(self, folder: Path) -> None:
        self._tokenizer = gpt2.build(folder)
        # where upstream cuts the text off, we refuse it
        self._max_tokens = min(gpt2.max_tokens(folder), MAX_TEXT_TOKENS)

    def encode(self, text: str, language: str | None = None) -> list[int]:
        """The ids of one utterance."""
        check_language(language, ("en",))
        ids = self._tokenizer.encode(normalize(text, TURBO)).ids
        return _fitting(ids, self._max_tokens)


class TextTokenizer(Protocol):
    """Any of them; `space` is the id that stands between words, if one does."""

    space: int | None

    def encode(self, text: str, language: str | None = None) -> list[int]:
        """The ids of one utterance, start and end included."""


def _load(path: Path) -> Tokenizer:
    text = read_text(path)
    try:
        tokenizer = Tokenizer.from_str(text)
    except Exception as error:  # the library raises bare Exceptions
        raise corrupt(path, f"is not a tokenizer file ({error})") from error
    for token, wanted in (("[START]", START_OF_TEXT), ("[STOP]", END_OF_TEXT)):
        if (found := tokenizer.token_to_id(token)) != wanted:
            raise corrupt(path, f"gives {token} the id {found} where the models have {wanted}")
    return tokenizer


def _ids(tokenizer: Tokenizer, text: str) -> list[int]:
    ids = tokenizer.encode(text.replace(" ", SPACE)).ids
    return [START_OF_TEXT, *_fitting(ids, MAX_TEXT_TOKENS), END_OF_TEXT]


def _fitting(ids: list[int], max_tokens: float) -> list[int]:
    if len(ids) > max_tokens:
        raise TextError(
            f"the text is {len(ids)} tokens long, but one utterance holds at most {max_tokens}; "
            "split it into sentences"
        )
    return ids
