"""Is this the voice? Embeddings of clips, and which of the known voices is the nearest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray

from nightingale.audio.files import Wave, resample
from nightingale.audio.mel import SPEECH_HZ
from nightingale.errors import OptionError
from nightingale.measure.ecapa import Ecapa
from nightingale.measure.judges import ECAPA, safetensors
from nightingale.weights.load import load_into

Embedding = NDArray[np.float32]  # (192,), of length 1

MIN_SAMPLES = SPEECH_HZ // 4  # shorter clips get silence: mirrored edges need some frames


class SpeakerJudge:
    """Tells who speaks."""

    def __init__(self, folder: Path) -> None:
        """`folder` is that of all judges."""
        with torch.device("meta"):
            self.network = Ecapa()
        load_into(self.network, safetensors(folder, ECAPA))

    def embed(self, samples: Wave, rate_hz: int) -> Embedding:
        wave = torch.from_numpy(resample(samples, rate_hz, SPEECH_HZ))
        wave = F.pad(wave, (0, max(0, MIN_SAMPLES - len(wave))))
        return centroid([self.network.embed(wave).numpy()])


@dataclass(frozen=True, slots=True)
class Match:
    """A clip beside the voice it should have and the nearest of all others."""

    own: float  # cosine, -1 to 1
    other: float | None  # None: no other voice is known
    other_voice: str | None

    @property
    def is_right(self) -> bool:
        return self.other is None or self.own > self.other


def centroid(embeddings: Sequence[Embedding]) -> Embedding:
    """What the clips of one voice have in common."""
    mean = np.stack(embeddings).astype(np.float64).mean(axis=0)
    unit: Embedding = (mean / max(float(np.linalg.norm(mean)), 1e-12)).astype(np.float32)
    return unit


def similarity(one: Embedding, other: Embedding) -> float:
    """Cosine of two embeddings."""
    return float(np.dot(one.astype(np.float64), other.astype(np.float64)))


def match(embedding: Embedding, voice: str, voices: Mapping[str, Embedding]) -> Match:
    """Compare a clip that should be `voice` with all known voices."""
    if voice not in voices:
        known = ", ".join(sorted(voices)) or "none"
        raise OptionError(f"voice {voice!r} is not among those enrolled ({known}); enroll it first")
    alike = {name: similarity(embedding, known) for name, known in voices.items()}
    own = alike.pop(voice)
    nearest = max(alike, key=lambda name: alike[name], default=None)
    return Match(own, None if nearest is None else alike[nearest], nearest)
