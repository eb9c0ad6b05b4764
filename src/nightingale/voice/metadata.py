"""What a voice file says about itself, read from its header alone: no torch, no tensors.

A voice file is a safetensors file with a `voice` entry in its metadata; its name says nothing.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, get_args

from nightingale.core import MAX_SPEED, MIN_SPEED, Family
from nightingale.errors import CorruptFileError, VoiceError

KEY = "voice"  # of the metadata
_MAX_GAIN_DB = 60
_MAX_HEADER = 2**16  # bytes; ours has less than one thousand, and a consent is a sentence or two


@dataclass(frozen=True, slots=True)
class VoiceMetadata:
    """What a person should know about a voice file."""

    family: Family  # the model it was made for
    language: str | None = None  # of the recording
    source_sha256: str | None = None  # of the recording
    consent: str | None = None  # who agreed to it being cloned, in a person's own words
    gain_db: float = 0.0  # that the recording was amplified by
    output_gain_db: float = 0.0  # that what the voice speaks is amplified by
    speed: float = 1.0  # at which the voice speaks where a request asks for 1


def metadata_of(header: bytes, what: str) -> VoiceMetadata:
    """From the first bytes of a file; `what` is how a person knows it."""
    try:
        return _parsed(_metadata(header)[KEY])
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        raise CorruptFileError(f"{what} is not a voice file ({error})") from error


def read_metadata(file: Path) -> VoiceMetadata:
    return metadata_of(_beginning(file), str(file))


def is_voice_file(file: Path) -> bool:
    """By its content; a file that cannot be opened is not one."""
    try:
        return KEY in _metadata(_beginning(file))
    except (VoiceError, ValueError, RecursionError):
        return False


def _beginning(file: Path) -> bytes:
    if not file.is_file():  # also a pipe or a device, which would never end
        raise VoiceError(f"{file} is not there, or is no file")
    try:
        with file.open("rb") as stream:
            return stream.read(8 + _MAX_HEADER)
    except OSError as error:
        raise VoiceError(f"{file} cannot be read: {error.strerror}") from error


def _metadata(header: bytes) -> Mapping[str, Any]:
    """Of a safetensors file: its length in eight bytes, then JSON."""
    n_header = int.from_bytes(header[:8], "little")
    if not 2 <= n_header <= min(_MAX_HEADER, len(header) - 8):
        raise ValueError("it has no safetensors header")
    found = json.loads(header[8 : 8 + n_header])
    metadata = found.get("__metadata__") if isinstance(found, dict) else None
    return metadata if isinstance(metadata, dict) else {}


def _parsed(text: str) -> VoiceMetadata:
    """Entries that a file does not have keep their defaults: older versions wrote fewer."""
    said = json.loads(text)
    metadata = VoiceMetadata(
        **{field.name: said[field.name] for field in fields(VoiceMetadata) if field.name in said}
    )
    if metadata.family not in get_args(Family):
        raise ValueError(f"made for {metadata.family!r}, which is none of {get_args(Family)}")
    if not all(isinstance(text, str | None) for text in (metadata.language, metadata.consent)):
        raise TypeError("language and consent must be text")
    gains = (metadata.gain_db, metadata.output_gain_db)
    if not all(isinstance(gain, int | float) and abs(gain) <= _MAX_GAIN_DB for gain in gains):
        raise ValueError(f"gains must be numbers between -{_MAX_GAIN_DB} and {_MAX_GAIN_DB}")
    speed = metadata.speed
    if not isinstance(speed, int | float) or not MIN_SPEED <= speed <= MAX_SPEED:  # nor NaN
        raise ValueError(f"its speed must be a number between {MIN_SPEED} and {MAX_SPEED}")
    return metadata
