"""Voice files in a folder, by name. Knows nothing of what is in them, and so nothing of torch."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from nightingale.errors import OptionError, VoiceError

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
MAX_BYTES = 4 * 2**20  # ten seconds of prompt are a quarter of a megabyte


class Folder:
    """A name is never a path: it is checked, letter by letter, before it becomes one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def names(self) -> list[str]:
        return sorted(file.stem for file in self._folder.glob("*.safetensors"))

    def put(self, name: str, data: bytes) -> Path:
        """Keep a file under a name that is not taken yet; it is there when it is whole."""
        file = self.check_free(name)
        self._folder.mkdir(parents=True, exist_ok=True)
        draft = file.with_name(f".{name}.{uuid4().hex[:8]}")
        try:
            draft.write_bytes(data)
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

    def find(self, name: str) -> Path:
        """The file of a voice that is there."""
        file = self._file(name)
        if not file.is_file():
            known = ", ".join(self.names()) or "none yet: make one with `nightingale voice add`"
            raise VoiceError(f"there is no voice {name!r}; there are: {known}")
        return file

    def export(self, name: str, to: Path, *, overwrite: bool = False) -> Path:
        """Copy a voice's file elsewhere, into a folder under its name; returns where it is now."""
        source = self.find(name)
        file = to / source.name if to.is_dir() else to
        if file.exists() and (not overwrite or file.samefile(source)):
            raise OptionError(f"{file} exists already; take another name, or overwrite it: --force")
        draft = file.with_name(f".{file.name}.{uuid4().hex[:8]}")
        try:
            draft.write_bytes(source.read_bytes())
            draft.replace(file)
        except OSError as error:
            raise OptionError(f"{file} cannot be written: {error.strerror}") from error
        finally:
            with suppress(OSError):
                draft.unlink(missing_ok=True)
        return file

    def remove(self, name: str) -> None:
        self.find(name).unlink()

    def _file(self, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise VoiceError(
                f"{name!r} cannot name a voice: take 1 to 64 of a-z, 0-9, - and _, a letter first"
            )
        return self._folder / f"{name}.safetensors"
