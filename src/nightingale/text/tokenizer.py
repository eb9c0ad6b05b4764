"""Text to ids: `encode(text, language)` for each family of models, built from plain files on disk.

Tokens typed into the text, such as [laughter], count where the file has them. Building one opens
no connection and needs no optional package. Knows nothing of the model that reads the ids.

`encode` is upstream's, which gives unknown characters the id of [UNK]; `readable` takes them out
before, by the vocabulary that was loaded.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Protocol

from tokenizers import Tokenizer

from nightingale.errors import LanguageError, TextError
from nightingale.families import TextForm
from nightingale.text import chinese, gpt2, letters, numbers
from nightingale.text.files import corrupt, read_text
from nightingale.text.languages import LANGUAGES, can_read_kanji, check_language, prepare
from nightingale.text.normalize import (
    ENGLISH,
    FULL_CASE,
    MULTILINGUAL,
    TURBO,
    Punctuation,
    check_text,
    normalize,
    replaced,
)
from nightingale.text.phonemes import PhonemeDictionary
from nightingale.text.readable import Readable, Stretches, take_out
from nightingale.text.scripts import LATIN, script_of

START_OF_TEXT = 255
END_OF_TEXT = 0
SPACE = "[SPACE]"
UNKNOWN = "[UNK]"
MAX_TEXT_TOKENS = 2048  # start and end not counted
_CONTROL = ("[START]", "[STOP]", "[PAD]", UNKNOWN)  # not for a text to hold
_N_CACHED = 8192  # characters whose spelling is kept
_BESIDE_KANJI = frozenset("々〆〇ヶヵ")  # read as parts of a word, but not alone
_FULL_CASE_STEPS = ("zh", "ru")
_TAG = re.compile(r"\[([a-z]{2})\]")  # of a language
_KANJI_RUN = re.compile(rf"[\u4e00-\u9fff{''.join(_BESIDE_KANJI)}]{{2,}}")


class _CharacterTokenizer:
    """A file with a token for every character that the model knows."""

    languages: Collection[str] = ("en",)
    _rules: Punctuation = ENGLISH
    _lowercase = False

    def __init__(self, json: Path) -> None:
        self._tokenizer = _load(json)
        self.space: int | None = self._tokenizer.token_to_id(SPACE)
        self.unknown: int | None = self._tokenizer.token_to_id(UNKNOWN)
        self._spelling = lru_cache(_N_CACHED)(self._spell)

    def readable(self, text: str, language: str | None = None) -> Readable:
        """What the model can read of a text; letters with unknown marks lose them."""
        check_text(text)
        code = check_language(language, self.languages)
        return take_out(
            text, lambda character: self._spelling(character, code), lambda t: self._find(t, code)
        )

    def _spell(self, character: str, code: str | None) -> str | None:
        if self._knows(self._form(character, code)):
            return character
        base = _without_marks(character)
        is_letter = base != character and any(map(str.isalnum, base))
        return base if is_letter and all(self._knows(self._form(b, code)) for b in base) else None

    def _form(self, character: str, _code: str | None) -> str | None:
        """What `encode` makes of one character; None: it gets lost."""
        return replaced(character, self._rules)

    def _knows(self, form: str | None) -> bool:
        if not form:
            return form is not None  # a mark that is meant to go
        ids = self._tokenizer.encode(form.replace(" ", SPACE)).ids
        return bool(ids) and self.unknown not in ids

    def _find(self, text: str, _code: str | None) -> Stretches:
        return Stretches(_places(self._typed, text), _places(self._control, text))

    @cached_property
    def _typed(self) -> re.Pattern[str]:
        """Tokens that a text may hold as they are."""
        if not self._lowercase:
            return _any_of(self.typed_tokens)
        tokens = (t for t in self.typed_tokens if t == t.lower())
        return _any_of(tokens, re.IGNORECASE | re.ASCII)

    @cached_property
    def typed_tokens(self) -> Collection[str]:
        """Such as [laugh]."""
        return _added(self._tokenizer) - {*_CONTROL}

    @cached_property
    def _control(self) -> re.Pattern[str]:
        return _any_of(_CONTROL)


class EnglishTokenizer(_CharacterTokenizer):
    """The original English model's: capital letters kept, 704 ids."""

    def encode(self, text: str, language: str | None = None) -> list[int]:
        """The ids of one utterance, start and end included."""
        check_language(language, self.languages)
        return _ids(self._tokenizer, normalize(text, ENGLISH))


class FledglingTokenizer(EnglishTokenizer):
    """The small model's: numbers and lone letters in words, none with marks: it read no others.

    With `dictionary`, words whose phonemes are known are given as phonemes.
    """

    def __init__(self, json: Path, dictionary: Path | None = None) -> None:
        super().__init__(json)
        self._dictionary = PhonemeDictionary(dictionary) if dictionary is not None else None
        self._letters = lru_cache(_N_CACHED)(self._spelled)

    def encode(self, text: str, language: str | None = None) -> list[int]:
        """The ids of one utterance, start and end included."""
        if self._dictionary is None:
            return super().encode(_without_marks(letters.spell(numbers.spell(text))), language)
        check_language(language, self.languages)
        return self.encode_parts(self.parts(text))

    def parts(self, text: str) -> Iterator[tuple[str, tuple[str, ...] | None]]:
        """The text in order, words with their phonemes where they are known."""
        assert self._dictionary is not None
        return self._dictionary.split(normalize(_without_marks(numbers.spell(text)), ENGLISH))

    def encode_parts(self, parts: Iterable[tuple[str, Sequence[str] | None]]) -> list[int]:
        """The ids of words that are given as phonemes, and of all else by its letters."""
        ids: list[int] = []
        for written, phonemes in parts:
            ids += self._letters(written) if phonemes is None else map(self._phoneme, phonemes)
        return [START_OF_TEXT, *_fitting(ids, MAX_TEXT_TOKENS), END_OF_TEXT]

    @property
    def has_phonemes(self) -> bool:
        """Whether the file has tokens that no text spells, but a dictionary has."""
        return self._tokenizer.token_to_id("AH0") is not None

    def _spelled(self, written: str) -> list[int]:
        return self._tokenizer.encode(written.replace(" ", SPACE)).ids

    def _phoneme(self, name: str) -> int:
        found: int | None = self._tokenizer.token_to_id(name)
        if found is None:
            raise TextError(f"the tokenizer file has no phoneme {name}, which the dictionary has")
        return found

    def _form(self, character: str, code: str | None) -> str | None:
        plain = _without_marks(character)
        return plain and super()._form(plain, code)

    def _find(self, text: str, code: str | None) -> Stretches:
        typed, control = super()._find(text, code)
        return Stretches([*typed, *numbers.stretches(text)], control)


class MultilingualTokenizer(_CharacterTokenizer):
    """The 23-language model's: NFKD, a tag in front, each language's own step. 2454 ids.

    `upstream` is what upstream's package does, and what V2 reads: small letters, then NFKD,
    then the language's step. `full_case`, of V3 and the packs: letters as they are, the steps of
    Chinese and Russian before NFKD, and none for Japanese, Hebrew and Korean.
    """

    def __init__(
        self, json: Path, cangjie: Path | None = None, form: TextForm = "upstream"
    ) -> None:
        super().__init__(json)
        self._cangjie = cangjie
        self._lowercase = form == "upstream"
        self._rules = MULTILINGUAL if form == "upstream" else FULL_CASE
        tags = (found[1] for found in map(_TAG.fullmatch, sorted(_added(self._tokenizer))) if found)
        # the model was made for the 23; a fine-tune may bring the tags of others
        self.languages = (*LANGUAGES, *(tag for tag in tags if tag not in LANGUAGES))

    def encode(self, text: str, language: str | None = None) -> list[int]:
        """The ids of one utterance, start and end included; without a language there is no tag."""
        code = check_language(language, self.languages)
        tag = f"[{code}]" if code else ""
        if tag and self._tokenizer.token_to_id(tag) is None:
            raise LanguageError(f"this model's tokenizer file has no token {tag}")
        text = normalize(text, self._rules)
        if self._lowercase:
            text = self._prepare(unicodedata.normalize("NFKD", text.lower()), code)
        elif code in _FULL_CASE_STEPS:
            text = unicodedata.normalize("NFKD", self._prepare(text, code))
        else:
            text = unicodedata.normalize("NFKD", text)
        return _ids(self._tokenizer, tag + text)

    def _prepare(self, text: str, code: str | None) -> str:
        if code == "zh":
            return chinese.spell(chinese.separate_words(text), self._cangjie_table)
        return prepare(text, code)

    def readable(self, text: str, language: str | None = None) -> Readable:
        """What the model can read of a text; letters with unknown marks lose them."""
        if check_language(language, self.languages) == "ja" and self._lowercase:
            check_text(text)
            text = unicodedata.normalize("NFC", text)  # reading kanji trips over marks of their own
        return super().readable(text, language)

    def _form(self, character: str, code: str | None) -> str | None:
        form = replaced(character, self._rules)
        if not self._lowercase:
            spelled = chinese.spell(form, self._cangjie_table) if code == "zh" else form
            return unicodedata.normalize("NFKD", spelled)
        form = unicodedata.normalize("NFKD", form.lower())
        if code == "zh":
            return chinese.spell(form, self._cangjie_table)
        if code == "ja":
            # a mark alone is read, but behind a letter it makes the letter heard twice
            lead = "x" if unicodedata.combining(form[0]) else ""
            return prepare(form, code) if can_read_kanji(lead + form) else None
        return form

    def _find(self, text: str, code: str | None) -> Stretches:
        typed, control = super()._find(text, code)
        if code == "ja" and self._lowercase:
            runs = (found for found in _KANJI_RUN.finditer(text) if _BESIDE_KANJI & {*found[0]})
            typed = [*typed, *(r.span() for r in runs if self._knows(self._form(r[0], code)))]
        return Stretches(typed, control)

    @cached_property
    def _cangjie_table(self) -> Mapping[str, str]:
        return chinese.read_table(self._cangjie)


class Gpt2Tokenizer:
    """Turbo's and Nano's: byte-level, nothing in front and nothing behind, 50276 ids."""

    languages: Collection[str] = ("en",)
    space: int | None = None  # spaces are parts of other tokens

    def __init__(self, folder: Path) -> None:
        self._tokenizer = gpt2.build(folder)
        self.unknown: int | None = self._tokenizer.token_to_id(gpt2.END)
        self.typed_tokens: Collection[str] = _added(self._tokenizer) - {gpt2.END}
        # where upstream cuts the text off, we refuse it
        self._max_tokens = min(gpt2.max_tokens(folder), MAX_TEXT_TOKENS)

    def encode(self, text: str, language: str | None = None) -> list[int]:
        """The ids of one utterance."""
        check_language(language, self.languages)
        ids = self._tokenizer.encode(normalize(text, TURBO)).ids
        return _fitting(ids, self._max_tokens)

    def readable(self, text: str, language: str | None = None) -> Readable:
        """Any byte has an id, but English is written in Latin letters: others are taken out."""
        check_text(text)
        check_language(language, self.languages)
        return take_out(text, _latin, lambda t: Stretches((), _places(_GPT2_CONTROL, t)))


class TextTokenizer(Protocol):
    """Any of them; `space` is the id that stands between words, if one does."""

    space: int | None
    languages: Collection[str]

    @property
    def typed_tokens(self) -> Collection[str]:
        """Tokens that a text may hold as they are, such as [laugh]."""

    def readable(self, text: str, language: str | None = None) -> Readable:
        """What the model can read of a text, and what not."""

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


def _added(tokenizer: Tokenizer) -> set[str]:
    return {token.content for token in tokenizer.get_added_tokens_decoder().values()}


def _any_of(tokens: Iterable[str], flags: int = 0) -> re.Pattern[str]:
    longest_first = sorted(tokens, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, longest_first)) or r"(?!)", flags)


def _places(pattern: re.Pattern[str], text: str) -> list[tuple[int, int]]:
    return [found.span() for found in pattern.finditer(text)]


def _without_marks(text: str) -> str:
    plain = unicodedata.normalize("NFKD", text)
    return "".join(c for c in plain if not unicodedata.combining(c))


_GPT2_CONTROL = _any_of([gpt2.END])


def _latin(character: str) -> str | None:
    """A character of English text as it is, or as one; None: of another script, or a picture."""
    if _is_latin(character):
        return character
    base = unicodedata.normalize("NFKD", character)
    return base if base != character and all(map(_is_latin, base)) else None


def _is_latin(character: str) -> bool:
    kind = unicodedata.category(character)
    is_mark = kind == "Mn" and script_of(character) == "COMBINING"
    is_letter = kind[0] == "L" and unicodedata.name(character, "").startswith(LATIN)
    is_written = character < "\u0100" and kind[0] != "C"  # Latin-1, with ° and ½
    return is_written or is_letter or is_mark or kind[0] == "P" or kind == "Sc"


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
