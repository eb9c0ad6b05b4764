"""Voices in a store that all replicas share: a folder, or whatever fsspec can open.

    names/<name>           the SHA-256 of the file that the name stands for now
    sha256/<digest>        that file; never changed, so that a copy is as good as it

A replica keeps copies of what it has used, and checks each by its hash. Names are asked for again
after a few seconds: a new voice is everywhere by then, a deleted one nowhere.
"""

from __future__ import annotations

import hashlib
import re
import time
from pathlib import Path
from typing import Any

from nightingale.errors import VoiceError
from nightingale.voice.folder import MAX_BYTES, Folder

_FRESH_S = 5.0
_DIGEST = re.compile(r"[0-9a-f]{64}")
_MAX_COPIES = 4096


class SharedFolder(Folder):
    """A folder of the store, with copies in a folder of this machine."""

    def __init__(self, folder: Path, store: str) -> None:
        super().__init__(folder)
        import fsspec  # noqa: PLC0415 - slow, and for replicas alone

        self._files: Any
        self._files, root = fsspec.core.url_to_fs(store)
        self._root = str(root).rstrip("/")
        self._seen: dict[str, tuple[float, str | None]] = {}  # name -> when asked, digest
        self._names: tuple[float, list[str]] = (-_FRESH_S, [])

    def names(self) -> list[str]:
        if time.monotonic() - self._names[0] > _FRESH_S:
            try:
                found = self._files.ls(f"{self._root}/names", detail=False)
            except FileNotFoundError:
                found = []
            names = sorted(str(path).rpartition("/")[2] for path in found)
            self._names = time.monotonic(), names
        return list(self._names[1])

    def has(self, name: str) -> bool:
        try:
            return self._digest(name) is not None
        except VoiceError:
            return False  # not a name

    def find(self, name: str) -> Path:
        digest = self._digest(name)
        if digest is None:
            raise FileNotFoundError(name)
        copy = self._folder / f"{digest}.safetensors"
        if not copy.is_file():
            self._fetch(digest)
        return copy

    def put(self, name: str, data: bytes) -> Path:
        self.check_free(name)
        digest = hashlib.sha256(data).hexdigest()
        self._files.makedirs(f"{self._root}/sha256", exist_ok=True)
        self._files.makedirs(f"{self._root}/names", exist_ok=True)
        self._files.pipe_file(f"{self._root}/sha256/{digest}", data)
        self._files.pipe_file(f"{self._root}/names/{name}", digest.encode())
        self._forget(name)
        return self.find(name)

    def check_free(self, name: str) -> Path:
        file = self._file(name)
        self._forget(name)
        if self._digest(name) is not None:
            raise VoiceError(f"there is a voice {name!r} already; remove it first")
        return file

    def remove(self, name: str) -> None:
        """The name, the file, and this machine's copy; others' copies cannot be reached by name."""
        copy, digest = self.find(name), self._digest(name)
        self._files.rm_file(f"{self._root}/names/{name}")
        self._forget(name)
        if not any(self._digest(other) == digest for other in self.names()):
            self._files.rm_file(f"{self._root}/sha256/{digest}")
            copy.unlink(missing_ok=True)

    def _forget(self, name: str) -> None:
        self._seen.pop(name, None)
        self._names = (-_FRESH_S, [])

    def _digest(self, name: str) -> str | None:
        """What a name stands for now; None: nothing."""
        self._file(name)  # raises if it is no name
        asked_at, digest = self._seen.get(name, (-_FRESH_S, None))
        if time.monotonic() - asked_at > _FRESH_S:
            try:
                text = self._files.cat_file(f"{self._root}/names/{name}", 0, 65).decode("ascii")
            except FileNotFoundError:
                text = ""
            digest = text.strip() if _DIGEST.fullmatch(text.strip()) else None
            if len(self._seen) > _MAX_COPIES:
                self._seen.clear()
            self._seen[name] = time.monotonic(), digest
        return digest

    def _fetch(self, digest: str) -> None:
        data: bytes = self._files.cat_file(f"{self._root}/sha256/{digest}", 0, MAX_BYTES + 1)
        if len(data) > MAX_BYTES or hashlib.sha256(data).hexdigest() != digest:
            raise VoiceError("a voice in the shared store is not what its hash says; add it again")
        copies = Folder(self._folder)
        for old in sorted(self._folder.glob("*.safetensors"), key=_used_at)[:-_MAX_COPIES]:
            old.unlink(missing_ok=True)
        if not (self._folder / f"{digest}.safetensors").is_file():
            copies.put(digest, data)


def _used_at(file: Path) -> float:
    return file.stat().st_atime
