"""Names that clients give for voices -> voice files. Never opens what is in them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from nightingale.errors import VoiceError
from nightingale.voice.folder import MAX_BYTES, Folder

OPENAI = (
    *("alloy", "ash", "ballad", "cedar", "coral", "echo", "fable", "juniper", "marin"),
    *("nova", "onyx", "sage", "shimmer", "verse"),
)
DEFAULT = "default"  # the model's own voice
_DEFAULTS = frozenset(("", DEFAULT, "nightingale", "s1", *OPENAI))
_SUFFIXES = (
    *(".wav", ".mp3", ".flac", ".ogg", ".opus", ".m4a", ".aac", ".mp4", ".webm"),
    ".safetensors",
)


@dataclass(frozen=True, slots=True)
class VoiceFile:
    """A voice as it goes over the wire."""

    digest: str | None = None  # None: the model's own
    data: bytes = b""


class Voices:
    """The library's voices by name, and names that mean the model's own."""

    def __init__(self, folder: Path) -> None:
        self.folder = Folder(folder)
        self._kept: dict[Path, tuple[tuple[int, int], VoiceFile]] = {}

    def names(self) -> list[str]:
        return [DEFAULT, *self.folder.names()]

    def find(self, name: str | None) -> VoiceFile:
        """By any name that a client may know it by; a voice of one's own goes first."""
        plain = _plain(name or "")
        if plain in _DEFAULTS and plain not in self.folder.names():
            return VoiceFile()
        try:
            return self._read(self.folder.find(plain))
        except VoiceError as error:
            known = ", ".join(self.names())
            raise VoiceError(f"there is no voice {name!r}; there are: {known}") from error

    def _read(self, file: Path) -> VoiceFile:
        state = file.stat()
        stamp = (state.st_mtime_ns, state.st_size)
        kept = self._kept.get(file)
        if kept is not None and kept[0] == stamp:
            return kept[1]
        if state.st_size > MAX_BYTES:
            raise VoiceError("this voice's file is larger than any voice file")
        data = file.read_bytes()
        found = VoiceFile(hashlib.sha256(data).hexdigest(), data)
        if len(self._kept) >= 64:
            self._kept.clear()
        self._kept[file] = (stamp, found)
        return found


def _plain(name: str) -> str:
    """As the library would call it: without the ending and the capitals that clients add."""
    plain = name.strip().lower()
    for suffix in _SUFFIXES:
        plain = plain.removesuffix(suffix)
    return plain
