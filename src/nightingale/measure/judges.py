"""The files that judges are made of, each known by its hash: other weights, other figures.

Pickles are converted once, beside themselves. Knows nothing of networks, nor where files come from.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from nightingale.errors import CorruptFileError, NotPulledError
from nightingale.weights.convert import convert
from nightingale.weights.manifest import sha256_of


@dataclass(frozen=True, slots=True)
class JudgeFile:
    """One file of weights below the folder of the judges."""

    asset: str  # what fetches it: python -m training.assets ASSET
    path: str
    sha256: str


WHISPER = JudgeFile(
    "whisper-base",
    "whisper-base/model.bin",
    "d01c3014881c9c6f3133c182f3d2887eb6ca1c789a7538c5c007196857a0a6a9",
)
ECAPA = JudgeFile(
    "ecapa",
    "ecapa/embedding_model.ckpt",
    "0575cb64845e6b9a10db9bcb74d5ac32b326b8dc90352671d345e2ee3d0126a2",
)
DISTILLMOS = JudgeFile(
    "distillmos",
    "distillmos/distill_mos_v7.pt",
    "b18b3ac60227267cfb91e5d00ce22cc7b73716fd92f269484da1446e27031a40",
)


def locate(folder: Path, wanted: JudgeFile) -> Path:
    """The file, after a look at its hash."""
    file = folder / wanted.path
    advice = f"fetch it with `python -m training.assets {wanted.asset}`"
    if not file.exists():
        raise NotPulledError(f"the judge {file} is not there; {advice}")
    found = sha256_of(file)
    if found != wanted.sha256:
        raise CorruptFileError(
            f"the judge {file} has SHA-256 {found}, not {wanted.sha256}; delete it and {advice}"
        )
    return file


def safetensors(folder: Path, wanted: JudgeFile) -> Path:
    """The safetensors twin of a pickle."""
    return convert(locate(folder, wanted), wanted.sha256, folder)
