"""What T3 learns from: texts with hints, tokens and places, in batches by the number of a step.

Reads what training.recite keeps, wide/VOICE.jsonl. A share of the words keep their letters although
their sounds are known, so that words outside the dictionary can be read too.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from nightingale.core import END_OF_SPEECH
from nightingale.text.tokenizer import FledglingTokenizer
from training import hints, letters, speakers
from training.batch import IGNORED, Batch, places
from training.work import work

WIDE = work() / "wide"
SPELLED = 0.15  # of the words whose sounds are known
N_VOICE = 36  # positions before the text and at the start of speech
MAX_TEXT, MAX_TOKENS = 400, 400


@dataclass(frozen=True, slots=True, eq=False)
class Example:
    voice: str
    ids: NDArray[np.uint8]
    tokens: NDArray[np.int16]
    ends: list[int]  # of words


def reader() -> FledglingTokenizer:
    return FledglingTokenizer(letters.FILE, hints.FILE)


def encode(tokenizer: FledglingTokenizer, text: str, key: str, spelled: float) -> list[int]:
    """With hints, of which a share is left out: for one key always the same."""
    chance = random.Random(key)
    return tokenizer.encode_parts(
        (written, None if sounds and chance.random() < spelled else sounds)
        for written, sounds in tokenizer.parts(text)
    )


def examples(file: Path, tokenizer: FledglingTokenizer, spelled: float) -> Iterator[Example]:
    """All lines of a voice that are not too long; without ends, the teacher misread something."""
    with file.open(encoding="utf-8") as lines:
        for line in lines:
            if not line.endswith("\n"):
                break  # still being written
            row = json.loads(line)
            if not row["ends"]:
                continue
            ids = encode(tokenizer, row["text"], row["id"], spelled)
            if len(ids) <= MAX_TEXT and len(row["tokens"]) <= MAX_TOKENS:
                tokens = np.array(row["tokens"], np.int16)
                yield Example(file.stem, np.array(ids, np.uint8), tokens, row["ends"])


class Lessons:
    """Batches of texts of one length, so that the only padding is behind the speech."""

    def __init__(self, files: list[Path], n_positions: int, spelled: float = SPELLED) -> None:
        tokenizer = reader()
        self._vectors = speakers.vectors_by_voice()
        self._by_voice: dict[str, list[Example]] = {}
        by_length: dict[int, list[Example]] = {}
        for example in (e for file in files for e in examples(file, tokenizer, spelled)):
            by_length.setdefault(len(example.ids), []).append(example)
            self._by_voice.setdefault(example.voice, []).append(example)
        self.batches: list[list[Example]] = []
        for length, group in by_length.items():
            group.sort(key=lambda example: len(example.tokens))
            at = 0
            while at < len(group):
                size = 1  # the last one is the longest, and all are padded to it
                while at + size < len(group) and size < (
                    n_positions / (N_VOICE + length + len(group[at + size].tokens))
                ):
                    size += 1
                self.batches.append(group[at : at + size])
                at += size

    @property
    def n_tokens(self) -> int:
        return sum(len(e.tokens) for listed in self._by_voice.values() for e in listed)

    def batch(self, step: int) -> Batch:
        """The same for the same step, while the files are the same."""
        epoch, index = divmod(step, len(self.batches))
        order = np.random.default_rng((13, epoch)).permutation(len(self.batches))
        return self.make(self.batches[order[index]], np.random.default_rng((17, step)))

    def make(self, rows: list[Example], chance: np.random.Generator) -> Batch:
        n_prompt = int(chance.integers(40, 150))
        longest = 1 + max(len(example.tokens) for example in rows)
        speech = torch.full((len(rows), longest), END_OF_SPEECH)
        wanted = torch.full((len(rows), longest), IGNORED)
        place = torch.zeros(len(rows), longest)
        prompts, vectors = [], []
        for row, example in enumerate(rows):
            n = len(example.tokens)
            speech[row, :n] = torch.from_numpy(example.tokens).long()
            wanted[row, : n + 1] = speech[row, : n + 1]
            where = places(example.ids.tolist(), example.ends, n, longest)
            place[row] = torch.from_numpy(where)
            prompts.append(self._prompt(example.voice, n_prompt, chance))
            of_voice = self._vectors[example.voice]
            vectors.append(of_voice[chance.integers(len(of_voice))])
        text = torch.from_numpy(np.stack([example.ids for example in rows])).long()
        speaker = torch.from_numpy(np.stack(vectors)).float()
        prompt = torch.from_numpy(np.stack(prompts)).long()
        return Batch(text, speech, wanted, place, prompt, speaker)

    def _prompt(self, voice: str, n: int, chance: np.random.Generator) -> NDArray[np.int16]:
        found: list[NDArray[np.int16]] = []
        listed = self._by_voice[voice]
        while sum(map(len, found)) < n:
            found.append(listed[chance.integers(len(listed))].tokens)
        return np.concatenate(found)[:n]
