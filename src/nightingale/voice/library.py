"""Voices on disk: one safetensors file each, with what a person should know about it in its header.

A file holds numbers computed from a recording, never the recording. Knows nothing of how they were
computed. Removing a voice removes its only file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from uuid import uuid4

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor

from nightingale.core import Family, FlowPrompt, T3Prompt, Voice
from nightingale.errors import CorruptFileError, VoiceError

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_MAX_BYTES = 4 * 2**20  # ten seconds of prompt are a quarter of a megabyte

# How the tensors are called in a file, and what they must look like (None: any length).
_LAYOUT: dict[str, tuple[torch.dtype, tuple[int | None, ...]]] = {
    "t3.speaker": (torch.float32, (256,)),
    "t3.tokens": (torch.int64, (None,)),
    "flow.tokens": (torch.int64, (None,)),
    "flow.mel": (torch.float32, (None, 80)),
    "flow.xvector": (torch.float32, (192,)),
}


@dataclass(frozen=True, slots=True)
class Card:
    """What a voice file says about itself."""

    family: Family  # the model it was made for
    language: str | None = None  # of the recording
    source_sha256: str | None = None  # of the recording
    consent: str | None = None  # who agreed to it being cloned, in a person's own words


class Library:
    """The voices in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def names(self) -> list[str]:
        return sorted(file.stem for file in self._folder.glob("*.safetensors"))

    def save(self, name: str, voice: Voice, card: Card) -> Path:
        """Keep a voice under a name that is not taken yet."""
        file = self.check_free(name)
        self._folder.mkdir(parents=True, exist_ok=True)
        draft = file.with_name(f".{name}.{uuid4().hex[:8]}")
        try:
            draft.write_bytes(to_bytes(voice, card))
            draft.replace(file)
        finally:
            draft.unlink(missing_ok=True)
        return file

    def check_free(self, name: str) -> Path:
        """Where a new voice of that name will be."""
        file = self._file(name)
        if file.exists():
            raise VoiceError(f"there is a voice {name!r} already; remove it first, or take another")
        return file

    def load(self, name: str, family: Family | None = None) -> tuple[Voice, Card]:
        """A voice and its card; with a family, only if that one knows the voice's tokens."""
        voice, card = read(self.find(name))
        if family is not None and (card.family == "fledgling") != (family == "fledgling"):
            raise VoiceError(
                f"the voice {name!r} was made for {card.family}, whose speech tokens {family} does "
                "not know; make it anew from its recording with `nightingale voice add`"
            )
        return voice, card

    def find(self, name: str) -> Path:
        """The file of a voice that is there."""
        file = self._file(name)
        if not file.is_file():
            known = ", ".join(self.names()) or "none yet: make one with `nightingale voice add`"
            raise VoiceError(f"there is no voice {name!r}; there are: {known}")
        return file

    def remove(self, name: str) -> None:
        self.find(name).unlink()

    def _file(self, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise VoiceError(
                f"{name!r} cannot name a voice: take 1 to 64 of a-z, 0-9, - and _, a letter first"
            )
        return self._folder / f"{name}.safetensors"


def to_bytes(voice: Voice, card: Card) -> bytes:
    """A voice as a file; the same voice gives the same bytes."""
    tensors = {
        "t3.speaker": voice.t3.speaker,
        "t3.tokens": voice.t3.tokens,
        "flow.tokens": voice.flow.tokens,
        "flow.mel": voice.flow.mel,
        "flow.xvector": voice.flow.xvector,
    }
    header = {"voice": json.dumps(asdict(card), sort_keys=True)}
    return save({name: t.cpu().contiguous() for name, t in tensors.items()}, header)


def read(file: Path) -> tuple[Voice, Card]:
    """A voice and its card, from a file that may come from anywhere."""
    try:
        if file.stat().st_size > _MAX_BYTES:
            raise CorruptFileError(f"{file} is larger than any voice file")
        with safe_open(file, framework="pt") as opened:
            header = opened.metadata() or {}
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
        card = _card(header)
    except FileNotFoundError as error:
        raise VoiceError(f"{file} is not there") from error
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise CorruptFileError(f"{file} is not a voice file ({error})") from error
    _check(file, tensors)
    return (
        Voice(
            T3Prompt(tensors["t3.speaker"], tensors["t3.tokens"]),
            FlowPrompt(tensors["flow.tokens"], tensors["flow.mel"], tensors["flow.xvector"]),
        ),
        card,
    )


def from_release(tensors: Mapping[str, Tensor]) -> Voice:
    """The voice that a released model brings along, from its converted conds.pt."""
    n_tokens = int(tensors["gen.prompt_token_len"].flatten()[0])
    return Voice(
        T3Prompt(
            tensors["t3.speaker_emb"].float().flatten(),
            tensors["t3.cond_prompt_speech_tokens"].long().flatten(),
        ),
        FlowPrompt(
            tensors["gen.prompt_token"].long().flatten()[:n_tokens],
            tensors["gen.prompt_feat"].float()[0],
            tensors["gen.embedding"].float().flatten(),
        ),
    )


def _card(header: Mapping[str, str]) -> Card:
    said = json.loads(header["voice"])
    return Card(**{field.name: said[field.name] for field in fields(Card)})


def _check(file: Path, tensors: Mapping[str, Tensor]) -> None:
    if tensors.keys() != _LAYOUT.keys():
        raise CorruptFileError(f"{file} holds {sorted(tensors)}, not what a voice is made of")
    for name, (dtype, shape) in _LAYOUT.items():
        tensor = tensors[name]
        fits = len(tensor.shape) == len(shape) and all(
            wanted in (None, found) for wanted, found in zip(shape, tensor.shape, strict=True)
        )
        if tensor.dtype != dtype or not fits:
            raise CorruptFileError(f"{file}: {name} is {tensor.dtype} {tuple(tensor.shape)}")
        if dtype.is_floating_point and not tensor.isfinite().all():
            raise CorruptFileError(f"{file}: {name} is not made of finite numbers")
        if not dtype.is_floating_point and not ((tensor >= 0) & (tensor < 6561)).all():
            raise CorruptFileError(f"{file}: {name} holds ids that are no speech tokens")
