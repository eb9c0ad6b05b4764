"""What a worker is asked to speak, in a form that another one can be asked again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from nightingale.server.voices import VoiceFile


@dataclass(slots=True)
class WorkerRequest:
    """A request that can be repeated: the same again gives the same sound."""

    options: dict[str, Any]  # with the seed
    text: list[str] = field(default_factory=list)
    is_arriving: bool = False  # it is cut as text that comes piece by piece
    is_open: bool = False  # and more may come
    voice: str | None = None  # SHA-256 of its file; None: the model's own
    voice_file: bytes = b""
    voices: dict[str, VoiceFile] = field(default_factory=dict)  # that its mark-up names

    def file_of(self, digest: str | None) -> bytes:
        """A voice's file, for a worker that does not have it."""
        named = {file.digest: file.data for file in self.voices.values()}
        return self.voice_file if digest == self.voice else named.get(digest, b"")


def voice_digests(voices: Mapping[str, VoiceFile]) -> dict[str, str | None]:
    """SHA-256 of their files, by the names that mark-up knows them by."""
    return {name: file.digest for name, file in voices.items()}
