"""One voice's clips on disk, and what a clip must be like to be kept.

VOICE.pcm is int16, mono, 24 kHz, utterances end to end; VOICE.jsonl has one line for each
utterance, written only after its samples. Knows nothing of who speaks.
"""

from __future__ import annotations

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

RATE = 24_000
BEFORE, _AFTER = round(0.1 * RATE), round(0.15 * RATE)  # silence that is left around the words
_PEAK = 0.95
LONGEST_S = 12.0
_SLOWEST, _FASTEST = 5.0, 26.0  # phonemes in a second


@dataclass(frozen=True, slots=True)
class Utterance:
    """One line of a corpus."""

    id: str
    text: str
    phonemes: str
    start: int  # in samples
    n_samples: int
    split: str


class CorpusError(Exception):
    """The two files of a voice do not belong together."""


class BadClipError(Exception):
    """A clip that must not be learnt from; the message is the reason, one word."""


def tidy(
    samples: NDArray[np.float32], n_phonemes: int, longest_s: float = LONGEST_S
) -> NDArray[np.int16]:
    """Without DC, with little silence around, below the peak, as int16; or BadClipError."""
    first, last = edges(samples)
    samples = samples - samples.mean()
    speed = n_phonemes / ((last - first) / RATE)
    if not _SLOWEST <= speed <= _FASTEST:
        raise BadClipError("slow" if speed < _SLOWEST else "fast")
    before = np.zeros(max(0, BEFORE - first), np.float32)
    after = np.zeros(max(0, last + _AFTER - len(samples)), np.float32)
    samples = np.concatenate([before, samples[max(0, first - BEFORE) : last + _AFTER], after])
    if len(samples) > longest_s * RATE:
        raise BadClipError("long")
    samples = samples * min(1.0, _PEAK / float(np.abs(samples).max()))
    return np.round(samples * 32767).astype(np.int16)


def edges(samples: NDArray[np.float32]) -> tuple[int, int]:
    """Where sound begins and where it ends; or BadClipError."""
    if not len(samples) or not np.isfinite(samples).all():
        raise BadClipError("broken")
    samples = samples - samples.mean()
    hop = RATE // 100
    frames = samples[: len(samples) // hop * hop].reshape(-1, hop)
    level = np.sqrt((frames**2).mean(axis=1))
    loud = np.flatnonzero(level > max(0.003, 0.02 * float(level.max(initial=0.0))))
    if not len(loud):
        raise BadClipError("silent")
    return int(loud[0]) * hop, (int(loud[-1]) + 1) * hop


def count_phonemes(phonemes: str) -> int:
    """Sounds only: neither stress marks nor punctuation."""
    return sum(sound.isalpha() and sound not in "ˈˌː" for sound in phonemes)


class Corpus:
    """A voice's two files. A tail that was cut off while writing is dropped."""

    def __init__(self, folder: Path, voice: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._pcm, self._list = folder / f"{voice}.pcm", folder / f"{voice}.jsonl"
        self._pcm.touch()
        self._list.touch()
        lines = self._list.read_bytes()
        whole = lines[: lines.rfind(b"\n") + 1]
        if len(whole) < len(lines):
            self._list.write_bytes(whole)
        self.utterances = [Utterance(**json.loads(line)) for line in whole.splitlines()]
        last = self.utterances[-1] if self.utterances else None
        self.n_samples = last.start + last.n_samples if last else 0
        there, listed = self._pcm.stat().st_size, 2 * self.n_samples
        if there < listed:
            raise CorpusError(
                f"{self._pcm} has {there} bytes, but its list speaks of {listed}; "
                f"remove it and {self._list.name}, and let the voice speak again"
            )
        os.truncate(self._pcm, listed)

    @property
    def seconds(self) -> float:
        """How long the voice has spoken."""
        return self.n_samples / RATE

    def add(
        self, name: str, text: str, phonemes: str, samples: NDArray[np.int16], split: str
    ) -> None:
        """Append one utterance: first its samples, then its line."""
        with self._pcm.open("ab") as pcm:
            pcm.write(samples.astype("<i2").tobytes())
        line = Utterance(name, text, phonemes, self.n_samples, len(samples), split)
        with self._list.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(asdict(line), ensure_ascii=False) + "\n")
        self.utterances.append(line)
        self.n_samples += len(samples)
