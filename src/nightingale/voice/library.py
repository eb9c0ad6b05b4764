"""Voices on disk: one safetensors file each, with what a person should know about it in its header.

A file holds numbers computed from a recording, never the recording. Knows nothing of how they were
computed. Removing a voice deletes its file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load, save

from nightingale.core import N_SPEECH_CODES, Family, FlowPrompt, T3Prompt, Voice
from nightingale.errors import CorruptFileError, VoiceError
from nightingale.families import FAMILIES
from nightingale.voice.folder import MAX_BYTES, Folder
from nightingale.voice.metadata import KEY, VoiceMetadata, metadata_of

# How the tensors are called in a file, and what they must look like (None: any length).
_LAYOUT: dict[str, tuple[type[np.generic], tuple[int | None, ...]]] = {
    "t3.speaker": (np.float32, (256,)),
    "t3.tokens": (np.int64, (None,)),
    "flow.tokens": (np.int64, (None,)),
    "flow.mel": (np.float32, (None, 80)),
    "flow.xvector": (np.float32, (192,)),
}


class VoiceLibrary(Folder):
    """The voices in one folder."""

    def save(self, name: str, voice: Voice, metadata: VoiceMetadata) -> Path:
        """Keep a voice under a name that is not taken yet."""
        return self.put(name, to_bytes(voice, metadata))

    def load(self, name: str, family: Family | None = None) -> tuple[Voice, VoiceMetadata]:
        """A voice and its metadata; with a family, only if that one knows the voice's tokens."""
        voice, metadata = read(self.find(name))
        if family is not None:
            check_family(f"the voice {name!r}", metadata, family)
        return voice, metadata


def check_family(what: str, metadata: VoiceMetadata, family: Family) -> None:
    """Refuse a voice whose speech tokens the family does not know."""
    if FAMILIES[metadata.family].codec != FAMILIES[family].codec:
        raise VoiceError(
            f"{what} was made for {metadata.family}, whose speech tokens {family} does not know; "
            "make it anew from its recording with `nightingale voice add`"
        )


def to_bytes(voice: Voice, metadata: VoiceMetadata) -> bytes:
    """A voice as a file; the same voice gives the same bytes."""
    metadata = replace(metadata, output_gain_db=voice.gain_db, speed=voice.speed)
    arrays = {
        "t3.speaker": voice.t3.speaker,
        "t3.tokens": voice.t3.tokens,
        "flow.tokens": voice.flow.tokens,
        "flow.mel": voice.flow.mel,
        "flow.xvector": voice.flow.xvector,
    }
    header = {KEY: json.dumps(asdict(metadata), sort_keys=True)}
    return save({name: np.ascontiguousarray(a) for name, a in arrays.items()}, header)


def read(file: Path) -> tuple[Voice, VoiceMetadata]:
    """A voice and its metadata, from a file that may come from anywhere."""
    if not file.is_file():
        raise VoiceError(f"{file} is not there, or is no file")
    if file.stat().st_size > MAX_BYTES:
        raise CorruptFileError(f"{file} is larger than any voice file")
    return from_bytes(file.read_bytes(), str(file))


def from_bytes(data: bytes, what: str) -> tuple[Voice, VoiceMetadata]:
    """Likewise, from what would be in the file; `what` is how a person knows it."""
    metadata = metadata_of(data, what)
    try:
        arrays = load(data)
    except (SafetensorError, KeyError, TypeError, ValueError) as error:
        raise CorruptFileError(f"{what} is not a voice file ({error})") from error
    _check(what, arrays)
    return (
        Voice(
            T3Prompt(arrays["t3.speaker"], arrays["t3.tokens"]),
            FlowPrompt(arrays["flow.tokens"], arrays["flow.mel"], arrays["flow.xvector"]),
            metadata.output_gain_db,
            metadata.speed,
        ),
        metadata,
    )


def from_release(arrays: Mapping[str, NDArray[np.generic]]) -> Voice:
    """The voice that a released model brings along, from its converted conds.pt."""
    n_tokens = int(arrays["gen.prompt_token_len"].flatten()[0])
    return Voice(
        T3Prompt(
            arrays["t3.speaker_emb"].astype(np.float32).flatten(),
            arrays["t3.cond_prompt_speech_tokens"].astype(np.int64).flatten(),
        ),
        FlowPrompt(
            arrays["gen.prompt_token"].astype(np.int64).flatten()[:n_tokens],
            arrays["gen.prompt_feat"].astype(np.float32)[0],
            arrays["gen.embedding"].astype(np.float32).flatten(),
        ),
    )


def _check(what: str, arrays: Mapping[str, NDArray[np.generic]]) -> None:
    if arrays.keys() != _LAYOUT.keys():
        raise CorruptFileError(f"{what} holds {sorted(arrays)}, not what a voice is made of")
    for name, (dtype, shape) in _LAYOUT.items():
        array = arrays[name]
        fits = len(array.shape) == len(shape) and all(
            wanted in (None, found) for wanted, found in zip(shape, array.shape, strict=True)
        )
        if array.dtype != dtype or not fits:
            raise CorruptFileError(f"{what}: {name} is {array.dtype} {array.shape}")
        if dtype is np.float32 and not np.isfinite(array).all():
            raise CorruptFileError(f"{what}: {name} is not made of finite numbers")
        if dtype is np.int64 and array.size and not _are_codes(array):
            raise CorruptFileError(f"{what}: {name} holds ids that are no speech tokens")


def _are_codes(array: NDArray[np.generic]) -> bool:
    ids = array.astype(np.int64)
    return bool(ids.min() >= 0 and ids.max() < N_SPEECH_CODES)
