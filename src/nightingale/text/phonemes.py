"""How words sound, for a model that reads phonemes as well as letters.

A file has a word to a line, then its phonemes in the alphabet of the CMU Pronouncing Dictionary:
`thermostat TH ER1 M AH0 S T AE2 T`; a capital letter stands for its name. Words that sound in
several ways are not in it: the model reads their letters. Knows nothing of ids.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from nightingale.text.files import corrupt, read_text
from nightingale.text.letters import ALONE

_WORD = re.compile(r"[A-Za-z]+(?:'[A-Za-z]+)*")
_HISSING = frozenset(("S", "Z", "SH", "ZH", "CH", "JH"))
_VOICELESS = frozenset(("P", "T", "K", "F", "TH"))


class PhonemeDictionary:
    """What a file of them says."""

    def __init__(self, file: Path) -> None:
        self._phonemes: dict[str, str] = {}
        for line in read_text(file).splitlines():
            word, _, phonemes = line.partition(" ")
            if not phonemes:
                raise corrupt(file, f"has a word without phonemes, {word!r}")
            self._phonemes[word] = phonemes

    def of(self, word: str) -> tuple[str, ...] | None:
        """Those of a word in lower case or of a capital letter; of a genitive by its stem."""
        found = self._phonemes.get(word)
        if found is not None:
            return tuple(found.split())
        stem = self._phonemes.get(word.removesuffix("'s")) if word.endswith("'s") else None
        return None if stem is None else with_s(tuple(stem.split()))

    def split(self, text: str) -> Iterator[tuple[str, tuple[str, ...] | None]]:
        """The text in order: words with their phonemes, and what has none."""
        alone = {found.start() for found in ALONE.finditer(text)}
        at = 0
        for found in _WORD.finditer(text):
            if at < found.start():
                yield text[at : found.start()], None
            at = found.end()
            word = found[0]
            yield word, self.of(word if found.start() in alone else word.lower())
        if at < len(text):
            yield text[at:], None


def with_s(phonemes: tuple[str, ...]) -> tuple[str, ...]:
    """As the ending of dog's, cat's and boss's is said."""
    if phonemes[-1] in _HISSING:
        return (*phonemes, "IH0", "Z")
    return (*phonemes, "S" if phonemes[-1] in _VOICELESS else "Z")
