"""The teachers' speech as training reads it: utterances by voice, their samples and features.

An utterance is cut to whole tokens, 960 samples each, so that tokens, frames and samples line up.
Features are computed once and kept beside the samples.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nightingale.audio.mel import flow_mel, token_log_mel
from nightingale.audio.resample import resample
from nightingale.core import SAMPLES_PER_TOKEN
from training.work import work

CORPUS = work() / "corpus"
FEATURES = work() / "features"
HELD_OUT_VOICES = "af_sarah", "held_mix"
MORE = "heart_more"  # the voice heart, saying what only T3 learns from: no features are kept of it
EXTRA = "extra_"  # a voice that only the flow and the x-vectors learn from begins like this
DEVELOPMENT_VOICES = tuple(f"{EXTRA}{number:02}" for number in range(6))  # for choices alone
PERTURBED = "_at_"  # is in the name of a voice that was played faster or slower
MIN_TOKENS, MAX_TOKENS = 12, 300


@dataclass(frozen=True, slots=True)
class Utterance:
    """One sentence of one voice; `start` counts samples in the voice's file."""

    voice: str
    id: str
    text: str
    phonemes: str
    split: str
    start: int
    n_tokens: int

    def samples(self) -> NDArray[np.float32]:
        """(n_tokens * 960,) at 24 kHz"""
        file = np.memmap(CORPUS / f"{self.voice}.pcm", np.int16, "r")
        n = self.n_tokens * SAMPLES_PER_TOKEN
        return file[self.start : self.start + n].astype(np.float32) / np.float32(32768)

    def speech(self) -> Tensor:
        """(n_tokens * 640,) at 16 kHz"""
        return resample(torch.from_numpy(self.samples()), 24_000, 16_000)


def cast() -> list[str]:
    """The voices that a clone is told from: neither extra ones nor any that were played faster."""
    return [voice for voice in voices() if not is_extra(voice) and not is_perturbed(voice)]


def is_learned(voice: str) -> bool:
    """Neither held out nor kept for choices."""
    return voice not in HELD_OUT_VOICES and voice not in DEVELOPMENT_VOICES


def is_perturbed(voice: str) -> bool:
    return PERTURBED in voice


def is_extra(voice: str) -> bool:
    return voice.startswith(EXTRA)


def voices(*, more: bool = False) -> list[str]:
    """All that were spoken; with `more`, also what only T3 learns from."""
    found = sorted(path.stem for path in CORPUS.glob("*.jsonl"))
    return found if more else [voice for voice in found if voice != MORE]


def read(voice: str) -> list[Utterance]:
    """All utterances of a voice, in the order they were spoken."""
    found = []
    for line in (CORPUS / f"{voice}.jsonl").read_text().splitlines():
        row = json.loads(line)
        n_tokens = row["n_samples"] // SAMPLES_PER_TOKEN
        if MIN_TOKENS <= n_tokens <= MAX_TOKENS:
            found.append(
                Utterance(
                    voice, str(row["id"]), row["text"], row["phonemes"], row["split"],
                    row["start"], n_tokens,
                )
            )  # fmt: skip
    return found


def training_set(*kinds: Features, more: bool = False) -> list[Utterance]:
    """What may be learned from, as far as it has these features: no held-out sentence or voice."""
    known = [voice for voice in voices(more=more) if is_learned(voice)]
    spoken = [u for voice in known for u in read(voice) if u.split == "train"]
    return [u for u in spoken if all(kind.has(u) for kind in kinds)]


def evenly(utterances: list[Utterance]) -> list[Utterance]:
    """All of the rarer voices, and of the first as many as of all of those, or a third of it."""
    rest = [u for u in utterances if u.voice != "heart"]
    heart = [u for u in utterances if u.voice == "heart"]
    return rest + heart[: max(len(rest), len(heart) // 3)]


def batches_of_equal_length(
    utterances: list[Utterance], n_tokens: int, seed: int
) -> Iterator[list[Utterance]]:
    """For ever: batches without padding, of about `n_tokens` tokens in all."""
    by_length: dict[int, list[Utterance]] = {}
    for utterance in utterances:
        by_length.setdefault(utterance.n_tokens, []).append(utterance)
    random = np.random.default_rng(seed)
    while True:
        batches = []
        for length, group in by_length.items():
            order = random.permutation(len(group))
            size = max(1, n_tokens // length)
            batches += [
                [group[i] for i in order[at : at + size]] for at in range(0, len(group), size)
            ]
        for index in random.permutation(len(batches)):
            yield batches[index]


class Features:
    """Arrays of one kind, one row a frame, of all utterances of a voice; made when first needed."""

    def __init__(self, kind: str, per_token: int, n_values: int) -> None:
        self.kind, self.per_token, self.n_values = kind, per_token, n_values
        self._open: dict[str, tuple[NDArray[np.float16], dict[str, int]]] = {}

    def of(self, utterance: Utterance) -> NDArray[np.float16]:
        """(n_tokens * per_token, n_values)"""
        if utterance.voice not in self._open:
            self._open[utterance.voice] = self._load(utterance.voice)
        array, rows = self._open[utterance.voice]
        start = rows[utterance.id]
        return array[start : start + utterance.n_tokens * self.per_token]

    def has(self, utterance: Utterance) -> bool:
        if utterance.voice not in self._open:
            self._open[utterance.voice] = self._load(utterance.voice)
        return utterance.id in self._open[utterance.voice][1]

    def _load(self, voice: str) -> tuple[NDArray[np.float16], dict[str, int]]:
        file = FEATURES / self.kind / f"{voice}.npy"
        index = file.with_suffix(".json")
        if not index.is_file():
            return np.zeros((0, self.n_values), np.float16), {}
        rows: dict[str, int] = json.loads(index.read_text())
        return np.load(file, mmap_mode="r"), rows


FLOW_MEL = Features("flow_mel", 2, 80)
TOKEN_MEL = Features("token_mel", 4, 128)


def _flow_mel(utterance: Utterance) -> NDArray[np.float16]:
    return flow_mel(torch.from_numpy(utterance.samples())).numpy().astype(np.float16)


def make_token_mel(utterance: Utterance) -> NDArray[np.float16]:
    return token_log_mel(utterance.speech()).T.numpy().astype(np.float16)


MAKERS = {"flow_mel": _flow_mel, "token_mel": make_token_mel}


def make(kind: str, voice: str, most: int | None = None) -> Path:
    """Compute one kind of features of a voice's utterances, or of its first ones, once."""
    torch.set_num_threads(1)
    file = FEATURES / kind / f"{voice}.npy"
    index = file.with_suffix(".json")
    utterances = read(voice)[:most]
    if index.is_file() and len(json.loads(index.read_text())) >= len(utterances):
        return file
    file.parent.mkdir(parents=True, exist_ok=True)
    rows, arrays, at = {}, [], 0
    for utterance in utterances:
        rows[utterance.id] = at
        arrays.append(MAKERS[kind](utterance))
        at += len(arrays[-1])
    np.save(file, np.concatenate(arrays))
    index.write_text(json.dumps(rows))
    return file


def main() -> None:
    """All features of all voices."""
    jobs = [(kind, voice) for kind in MAKERS for voice in voices()]
    with ProcessPoolExecutor(2) as pool:
        for file in pool.map(make, *zip(*jobs, strict=True)):
            print(file)


if __name__ == "__main__":
    main()
