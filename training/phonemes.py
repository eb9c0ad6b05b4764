"""Which words T3 is given as sounds: `python -m training.phonemes` writes pronunciations.txt.

The sounds are the CMU Pronouncing Dictionary's; of several ways to say a word, the one that the
teacher uses. A word that the teacher says now so, now otherwise, or quite unlike the dictionary, is
left to its letters.
"""

from __future__ import annotations

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

import typer

from nightingale.text.letters import ALONE
from training.work import work

FILE = work() / "pronunciations.txt"
HEARD = work() / "wide" / "heart.jsonl"
MAY_VARY = 0.1  # share of the teacher's second way to say a word
MAY_DIFFER = 0.5  # of a word's sounds, from the teacher's
MIN_HEARD = 3  # times, to count as evidence
_WORD = re.compile(r"[a-z]+(?:'[a-z]+)*")
_VOWELS = (
    "AA", "AE", "AH", "AO", "AW", "AY", "EH", "ER", "EY", "IH", "IY", "OW", "OY", "UH", "UW",
)  # fmt: skip
_CONSONANTS = (
    "B", "CH", "D", "DH", "F", "G", "HH", "JH", "K", "L", "M", "N", "NG", "P", "R", "S", "SH",
    "T", "TH", "V", "W", "Y", "Z", "ZH",
)  # fmt: skip
SOUNDS = (*_CONSONANTS, *(vowel + stress for vowel in _VOWELS for stress in "012"))
_TEACHERS = {
    "A": "EY", "I": "AY", "O": "OW", "W": "AW", "Y": "OY", "ʤ": "JH", "ʧ": "CH", "æ": "AE",
    "ɑ": "AA", "ɔ": "AO", "ə": "AH", "ɛ": "EH", "ɜ": "ER", "ɪ": "IH", "ʊ": "UH", "ʌ": "AH",
    "i": "IY", "u": "UW", "ᵊ": "AH", "ᵻ": "IH", "ɐ": "AH", "T": "T", "ɾ": "T", "ʔ": "T",
    "ð": "DH", "θ": "TH", "ʃ": "SH", "ʒ": "ZH", "ŋ": "NG", "ɹ": "R", "j": "Y", "ɡ": "G",
    "h": "HH", "b": "B", "d": "D", "f": "F", "k": "K", "l": "L", "m": "M", "n": "N", "p": "P",
    "s": "S", "t": "T", "v": "V", "w": "W", "z": "Z",
}  # fmt: skip

Sounds = tuple[str, ...]


def read_dictionary(file: Path) -> dict[str, list[Sounds]]:
    """Every way to say each word."""
    found: dict[str, list[Sounds]] = defaultdict(list)
    for line in file.read_text(encoding="utf-8").splitlines():
        entry, *sounds = line.partition("#")[0].split()
        word = entry.partition("(")[0]
        if _WORD.fullmatch(word):
            found[word].append(tuple(sounds))
    return dict(found)


def teachers(phonemes: str) -> Sounds:
    """The teacher's phonemes of a word in the dictionary's alphabet, without stress."""
    said: list[str] = []
    for sound in phonemes:
        name = _TEACHERS.get(sound)
        if name == "R" and said and said[-1] in ("AH", "ER"):
            said[-1] = "ER"
        elif name:
            said.append(name)
    return tuple(said)


def plain(sounds: Sequence[str]) -> Sounds:
    """Without stress."""
    return tuple(sound.rstrip("012") for sound in sounds)


def distance(ours: Sequence[str], theirs: Sequence[str]) -> float:
    """Sounds that differ; a vowel for another counts half."""
    row: list[float] = list(range(len(theirs) + 1))
    for i, a in enumerate(plain(ours), 1):
        before, row = row, [float(i)]
        for j, b in enumerate(theirs, 1):
            other = 0.0 if a == b else 0.5 if a in _VOWELS and b in _VOWELS else 1.0
            row.append(min(before[j] + 1, row[-1] + 1, before[j - 1] + other))
    return row[-1]


def heard(file: Path) -> dict[str, Counter[Sounds]]:
    """How the teacher said each word, and how often so."""
    found: dict[str, Counter[Sounds]] = defaultdict(Counter)
    with file.open(encoding="utf-8") as lines:
        for line in lines:
            row = json.loads(line)
            if row["ends"]:
                for word, said in zip(keys(row["text"]), row["phonemes"].split(), strict=True):
                    found[word][teachers(said)] += 1
    return found


def keys(text: str) -> Iterable[str]:
    """Each word as the file of pronunciations has it."""
    alone = {found.start() for found in ALONE.finditer(text)}
    for found in re.finditer(r"\S+", text):
        word = found[0].strip(".,?!")
        yield word if found.start() in alone else word.lower()


def choose(ways: list[Sounds], said: Counter[Sounds]) -> Sounds | None:
    """The way that fits what was heard; None: letters say it better."""
    n = said.total()
    if n < MIN_HEARD:
        return ways[0]
    votes: Counter[Sounds] = Counter()
    far = 0.0
    for sounds, times in said.items():
        nearest = min(ways, key=lambda way: distance(way, sounds))
        votes[nearest] += times
        far += times * distance(nearest, sounds) / len(nearest)
    (first, _), *others = votes.most_common()
    # Two ways that differ in stress alone count as one: the teacher's sounds here have none.
    rest = sum(times for way, times in others if plain(way) != plain(first))
    return None if rest > MAY_VARY * n or far > MAY_DIFFER * n else first


def main() -> None:
    """Once: what T3 was shown must stay what it is shown."""
    if FILE.exists():
        typer.echo(f"{FILE} is there; T3 may have learned with it")
        return
    ways, said = read_dictionary(work() / "assets" / "cmudict" / "cmudict.dict"), heard(HEARD)
    chosen = {word: choose(listed, said[word]) for word, listed in sorted(ways.items())}
    left = [word for word, sounds in chosen.items() if sounds is None]
    # "a" is the article first, and the letter last
    names = {
        letter.upper(): ways[letter][-1 if letter == "a" else 0]
        for letter in ways
        if len(letter) == 1
    }
    lines = [f"{word} {' '.join(sounds)}\n" for word, sounds in (chosen | names).items() if sounds]
    FILE.write_text("".join(lines), encoding="utf-8")
    common = " ".join(sorted(left, key=lambda word: -said[word].total())[:60])
    typer.echo(f"{len(lines)} words in {FILE}; {len(left)} left to letters: {common}")


if __name__ == "__main__":
    typer.run(main)
