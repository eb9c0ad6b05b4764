"""How words sound, for a model that reads sounds as well as letters.

A file has a word to a line, then its sounds in the alphabet of the CMU Pronouncing Dictionary:
`thermostat TH ER1 M AH0 S T AE2 T`; a large letter stands for its name. Words that sound in several
ways are not in it: the model reads their letters. Knows nothing of ids.
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


class Pronunciations:
    """What a file of them says."""

    def __init__(self, file: Path) -> None:
        self._sounds: dict[str, str] = {}
        for line in read_text(file).splitlines():
            word, _, sounds = line.partition(" ")
            if not sounds:
                raise corrupt(file, f"has a word without sounds, {word!r}")
            self._sounds[word] = sounds

    def of(self, word: str) -> tuple[str, ...] | None:
        """The sounds of a word in small letters or of a large letter; of a genitive by its stem."""
        found = self._sounds.get(word)
        if found is not None:
            return tuple(found.split())
        stem = self._sounds.get(word.removesuffix("'s")) if word.endswith("'s") else None
        return None if stem is None else with_s(tuple(stem.split()))

    def split(self, text: str) -> Iterator[tuple[str, tuple[str, ...] | None]]:
        """The text in order: words with their sounds, and what has none."""
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


def with_s(sounds: tuple[str, ...]) -> tuple[str, ...]:
    """As the ending of dog's, cat's and boss's is said."""
    if sounds[-1] in _HISSING:
        return (*sounds, "IH0", "Z")
    return (*sounds, "S" if sounds[-1] in _VOICELESS else "Z")
