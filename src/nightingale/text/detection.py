"""Which language is a text written in? Asked for by `language: auto`, and by nothing else.

Naive Bayes over byte n-grams (py3langid, the only door to it). Only the beginning of a text is
looked at, so that it takes milliseconds however long the text is; the same text gives the same
answer. Loading takes most of a second and some 100 MB, once in a process, when first asked.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from functools import lru_cache
from importlib import import_module
from typing import Any, NamedTuple

from nightingale.errors import MissingPackageError
from nightingale.text.languages import LANGUAGES
from nightingale.text.split import CUT

DETECT = "auto"  # in place of a language
MAX_CHARACTERS = 2000  # of a text, that are looked at
MAX_ARRIVING = 80  # of a text that is still being written: nothing is said before these are there


class DetectedLanguage(NamedTuple):
    """The most likely language of those that a model speaks, and its probability among all that are
    known: low also where the text is in a language that the model does not speak."""

    code: str
    confidence: float  # 0 to 1; 0: there was nothing to go by
    written: str | None = None  # the language that the text seems to be in, if it is not spoken

    def __str__(self) -> str:
        other = f"; written={self.written}" if self.written else ""
        return f"{self.code}; confidence={self.confidence:.2f}{other}"

    @property
    def fields(self) -> dict[str, Any]:
        """For JSON."""
        other = {"language_written": self.written} if self.written else {}
        return {
            "language": self.code,
            "language_confidence": round(self.confidence, 4),
            **other,
        }

    @property
    def description(self) -> str:
        """For a person."""
        name = f"{LANGUAGES.get(self.code, self.code)} ({self.code})"
        if self.written:
            other = f"{LANGUAGES.get(self.written, self.written)} ({self.written})"
            return f"{name}; the text seems to be {other}, which this model does not speak"
        if not self.confidence:
            return f"{name}; the text has no letters to detect one by"
        return f"{name}, detected with confidence {self.confidence:.2f}"


def detect_language(
    text: str, spoken: Collection[str], fallback: str | None = None
) -> DetectedLanguage:
    """One of the languages that are spoken. Of text without letters, nothing is known: the
    fallback, or the first of them, with a confidence of 0."""
    sample = text[:MAX_CHARACTERS]
    candidates = {*LANGUAGES, *spoken}
    ranked = _identifier().rank(sample) if any(map(str.isalpha, sample)) else []
    likely = {code: score for code, score in ranked if code in candidates}
    total = sum(likely.values())
    if not total > 0.0:
        return DetectedLanguage(fallback or next(iter(spoken)), 0.0)
    written = max(likely, key=lambda code: likely[code])
    best = max(spoken, key=lambda code: likely.get(code, 0.0))
    if best not in likely or not likely[best]:
        best = fallback or next(iter(spoken))
    confidence = likely.get(best, 0.0) / total
    return DetectedLanguage(best, confidence, None if written in spoken else written)


def beginning(pieces: Iterator[str]) -> Iterator[str | None]:
    """What of a text that is still being written is needed to know its language: None for each
    piece before that is there, and then all that has come.

    How much that is depends on the characters alone: MAX_ARRIVING of them, or less if the text ends
    or is cut before.
    """
    held = ""
    for piece in pieces:
        held += piece
        if len(held) >= MAX_ARRIVING or CUT in held:
            break
        yield None
    yield held


def arriving_sample(held: str) -> str:
    """Of what `beginning` gave, the part that does not depend on how it was handed over."""
    return held.split(CUT, 1)[0][:MAX_ARRIVING]


@lru_cache(maxsize=1)
def _identifier() -> Any:
    try:
        library = import_module("py3langid.langid")
    except ImportError as error:
        raise MissingPackageError(
            "language detection needs the package py3langid; install it with pip install "
            "py3langid, or name the language"
        ) from error
    return library.LanguageIdentifier.from_model_file(library.MODEL_FILE, norm_probs=True)
