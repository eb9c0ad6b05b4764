"""The training data of T3: text with phonemes, speech tokens and their alignment, batch by step.

Reads what training.token_corpus wrote of the main voice, wide/heart.jsonl, and what
training.other_voices wrote, others/VOICE.jsonl; the latter are repeated until each has an equal
part of a share of all tokens. A share of the words keep their letters although their phonemes are
known, so that words outside the dictionary can be read too.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from nightingale.core import END_OF_SPEECH
from nightingale.text.tokenizer import FledglingTokenizer
from training import phonemes, speakers, text_tokenizer
from training.batch import IGNORED, Batch, places
from training.work import work

WIDE = work() / "wide"
OTHERS = work() / "others"
SPELLED = 0.15  # of the words whose sounds are known
SHARE_OF_OTHERS = 0.3  # of all tokens are said by other voices than the first
MAX_TIMES = 10  # in an epoch, of one example
N_VOICE = 36  # positions before the text and at the start of speech
MAX_TEXT, MAX_TOKENS = 400, 400


@dataclass(frozen=True, slots=True, eq=False)
class Example:
    voice: str
    ids: NDArray[np.uint8]
    tokens: NDArray[np.int16]
    ends: list[int]  # of words


def text_tokenizer_with_phonemes() -> FledglingTokenizer:
    return FledglingTokenizer(text_tokenizer.FILE, phonemes.FILE)


def encode(tokenizer: FledglingTokenizer, text: str, key: str, spelled: float) -> list[int]:
    """With phonemes, of which a share is left out: for one key always the same."""
    rng = random.Random(key)
    return tokenizer.encode_parts(
        (written, None if sounds and rng.random() < spelled else sounds)
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


def count(listed: list[Example]) -> int:
    """Speech tokens."""
    return sum(len(example.tokens) for example in listed)


def batches(listed: list[Example], n_positions: int) -> list[list[Example]]:
    """Texts of one length, speech of about one length."""
    made: list[list[Example]] = []
    by_length: dict[int, list[Example]] = {}
    for example in listed:
        by_length.setdefault(len(example.ids), []).append(example)
    for length, group in by_length.items():
        group.sort(key=lambda example: len(example.tokens))
        at = 0
        while at < len(group):
            size = 1  # the last one is the longest, and all are padded to it
            while at + size < len(group) and size < (
                n_positions / (N_VOICE + length + len(group[at + size].tokens))
            ):
                size += 1
            made.append(group[at : at + size])
            at += size
    return made


def scatter(listed: list[Example], n_times: int, made: list[list[Example]]) -> None:
    """Add each example to so many of the batches whose texts are as long, and the speech nearly."""
    by_length: dict[int, list[tuple[int, list[Example]]]] = {}
    for batch in made:
        longest = max(len(example.tokens) for example in batch)
        by_length.setdefault(len(batch[0].ids), []).append((longest, batch))
    for example in listed:
        fitting = by_length.get(len(example.ids), [])
        nearest = sorted(fitting, key=lambda found: abs(found[0] - len(example.tokens)))
        for _, batch in nearest[:n_times]:
            batch.append(example)


class PhonemeDataset:
    """Batches of texts of one length, so that the only padding is behind the speech."""

    def __init__(
        self,
        files: list[Path],
        n_positions: int,
        spelled: float = SPELLED,
        others: Sequence[Path] = (),
    ) -> None:
        tokenizer = text_tokenizer_with_phonemes()
        self._vectors = speakers.vectors_by_voice()
        self._by_voice: dict[str, list[Example]] = {}
        for example in (e for f in (*files, *others) for e in examples(f, tokenizer, spelled)):
            self._by_voice.setdefault(example.voice, []).append(example)
        names = [file.stem for file in others]
        first = [e for v, listed in self._by_voice.items() if v not in names for e in listed]
        self.batches = batches(first, n_positions)
        self.facts = (
            f"{len(self.batches)} batches, {count(first) / 90_000:.1f} h of the first voice"
        )
        wanted = count(first) * SHARE_OF_OTHERS / (1 - SHARE_OF_OTHERS) / max(1, len(names))
        for name in names:
            n_times = round(wanted / count(self._by_voice[name]))
            scatter(self._by_voice[name], min(MAX_TIMES, max(1, n_times)), self.batches)
        n_others = sum(len(e.tokens) for batch in self.batches for e in batch if e.voice in names)
        self.facts += f", {n_others / 90_000:.1f} h of {len(names)} others with all repeats"

    def batch(self, step: int) -> Batch:
        """The same for the same step, while the files are the same."""
        epoch, index = divmod(step, len(self.batches))
        order = np.random.default_rng((13, epoch)).permutation(len(self.batches))
        return self.make(self.batches[order[index]], np.random.default_rng((17, step)))

    def make(self, rows: list[Example], rng: np.random.Generator) -> Batch:
        n_prompt = int(rng.integers(40, 150))
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
            prompts.append(self._prompt(example.voice, n_prompt, rng))
            of_voice = self._vectors[example.voice]
            vectors.append(of_voice[rng.integers(len(of_voice))])
        text = torch.from_numpy(np.stack([example.ids for example in rows])).long()
        speaker = torch.from_numpy(np.stack(vectors)).float()
        prompt = torch.from_numpy(np.stack(prompts)).long()
        return Batch(text, speech, wanted, place, prompt, speaker)

    def _prompt(self, voice: str, n: int, rng: np.random.Generator) -> NDArray[np.int16]:
        found: list[NDArray[np.int16]] = []
        listed = self._by_voice[voice]
        while sum(map(len, found)) < n:
            found.append(listed[rng.integers(len(listed))].tokens)
        return np.concatenate(found)[:n]
