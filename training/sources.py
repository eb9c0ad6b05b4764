"""Sentences written by people: read out of the fetched texts, one generator for each source.

Gives raw sentences with their kind; which are fit to be spoken is decided in training.texts.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path

_SENTENCE_END = re.compile(r"(?<=[.!?])['\"]*\s+(?=['\"]*[A-Z])")
_FIRST_MODERN_YEAR = 1945  # older addresses are not how people speak
_EXAMPLE = re.compile(r'"([^"]+)"')
# A dictionary example is often a mere phrase ("deep breath"); with these openings and a verb, not.
_OPENING = re.compile(
    r"^(?:I|I'm|I'll|I've|I'd|you|he|she|it|we|they|this|that|these|those|there|who|what|where|when|why|how|"
    r"do|does|did|don't|can|could|will|would|is|are|was|were|please|let's|let|my|his|her|our|their|your|"
    r"the|a|an|some|all|many|most|no|nobody|everyone|everybody|someone|John|Mary) ",
    re.IGNORECASE,
)
_VERB = re.compile(
    r"\b(?:is|are|was|were|am|be|been|has|have|had|do|does|did|will|would|can|could|should|may|might|must|"
    r"shall|'s|'re|'ll|'ve|isn't|wasn't|don't|doesn't|didn't|can't|couldn't|won't|wouldn't|"
    r"said|went|came|got|made|took|gave|saw|knew|felt|kept|left|put|told|thought|wants?|needs?|likes?|"
    r"looks?|seems?|goes|makes?|takes?|gives?|comes?|gets?|let|knows?|ran|fell|held|stood|lost|spoke|wrote|"
    r"broke|drove|ate|grew|threw|found|brought|bought|sold|sent|built|met|led|read|heard|paid|won|began|"
    r"(?<!\ban )(?<!\ba )(?<!the )[a-z]{2,}ed)\b"
)


def sentences_of(paragraph: str) -> list[str]:
    """Cut running text at the ends of its sentences."""
    return [part.strip(" '\"") for part in _SENTENCE_END.split(" ".join(paragraph.split()))]


def read_libritts(file: Path) -> Iterator[str]:
    """Lines of public-domain books, as read aloud for LibriVox."""
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        rows = json.load(lines)
    for row in rows:
        yield from sentences_of(row["prompt_text"])
        yield from sentences_of(row["target_text"])


def read_sotu(folder: Path) -> Iterator[str]:
    """Speeches to be heard: State of the Union addresses of modern times."""
    for file in sorted(folder.iterdir()):
        if int(file.name[:4]) >= _FIRST_MODERN_YEAR:
            yield from sentences_of(file.read_text(encoding="utf-8", errors="replace"))


def read_old_sotu(folder: Path) -> Iterator[str]:
    """The older addresses: long words in plenty."""
    for file in sorted(folder.iterdir()):
        if int(file.name[:4]) < _FIRST_MODERN_YEAR:
            yield from sentences_of(file.read_text(encoding="utf-8", errors="replace"))


def read_wordnet(folder: Path) -> Iterator[str]:
    """The dictionary's examples of use that are whole sentences: a very wide vocabulary."""
    for file in sorted(folder.iterdir()):
        for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
            for example in _EXAMPLE.findall(line.partition(" | ")[2]):
                text = example.strip()
                if _OPENING.match(text) and _VERB.search(text):
                    mark = "" if text[-1] in ".?!" else "?" if _asks(text) else "."
                    yield text[0].upper() + text[1:] + mark


def read_phrases(folder: Path) -> Iterator[str]:
    """The dictionary's other examples, and its definitions: not sentences, but words in company."""
    for file in sorted(folder.iterdir()):
        for line in file.read_text(encoding="utf-8", errors="replace").splitlines():
            gloss = line.partition(" | ")[2]
            phrases = [gloss.partition('"')[0].partition(";")[0], *_EXAMPLE.findall(gloss)]
            for phrase in phrases:
                text = phrase.strip(" ;")
                if text and not (_OPENING.match(text) and _VERB.search(text)):
                    yield text[0].upper() + text[1:].rstrip(".") + "."


def read_chatterbot(folder: Path) -> Iterator[str]:
    """Small talk and simple facts, as questions and answers."""
    for file in sorted(folder.iterdir()):
        for line in file.read_text(encoding="utf-8").splitlines():
            found = re.match(r"\s*(?:- )+(.+)$", line)
            if found:
                for text in sentences_of(found[1].strip("'\" ")):
                    if text:
                        yield text if text[-1] in ".?!" else text + ("?" if _asks(text) else ".")


def read_all(root: Path) -> Iterator[tuple[str, str]]:
    """(kind, sentence) of every source, in a fixed order."""
    for kind, sentences in (
        ("book", read_libritts(root / "libritts.json.gz")),
        ("speech", read_sotu(root / "sotu")),
        ("example", read_wordnet(root / "wordnet")),
        ("chat", read_chatterbot(root / "chatterbot")),
    ):
        for sentence in sentences:
            yield kind, sentence


def read_more(root: Path) -> Iterator[tuple[str, str]]:
    """What else there is, for a voice that can say a lot."""
    yield from read_all(root)
    for sentence in read_phrases(root / "wordnet"):
        yield "phrase", sentence


def _asks(text: str) -> bool:
    return bool(
        re.match(
            r"(?:who|what|where|why|how|which|whose|do|does|did|can|could|will|would|is|are|was|were|"
            r"when (?:is|are|was|were|do|does|did|will)|have you|has|should|may|am) ",
            text,
            re.IGNORECASE,
        )
    )
