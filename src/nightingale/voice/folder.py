"""Voice files in a folder, by name. Knows nothing of what is in them, and so nothing of torch.

Voices are personal data: files can be read by their owner alone (0600, in folders of 0700).
"""

from __future__ import annotations

import difflib
import os
import re
import time
from bisect import bisect_left
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from nightingale.errors import OptionError, VoiceError
from nightingale.weights.manifest import BUNDLE

BUILT_IN = BUNDLE / "voices"  # those of the bundled model, beside its default one
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_SUFFIX = ".safetensors"
MAX_BYTES = 4 * 2**20  # ten seconds of prompt are a quarter of a megabyte
_SETTLED_NS = 10**9  # a folder that changed later than this before it was listed is listed again
_N_CLOSE = 3  # names that an error suggests
_N_COMPARED = 60  # names that are looked at for it


class Folder:
    """A name is never a path: it is checked, letter by letter, before it becomes one.

    With `built_in`, also the voices of that folder, as far as there is none of the same name here;
    they are only read.
    """

    def __init__(self, folder: Path, built_in: Path | None = None) -> None:
        self._folder = folder
        self._built_in = None if built_in is None else Folder(built_in)
        self._listed: tuple[tuple[int, int], list[str]] | None = None  # stamp of the folder, names

    def names(self) -> list[str]:
        """Sorted; the folder is read again only after it has changed."""
        own = self._own_names()
        return sorted({*own, *self._built_in.names()}) if self._built_in else own

    def _own_names(self) -> list[str]:
        try:
            seen = self._folder.stat()
        except FileNotFoundError:
            return []
        stamp = (seen.st_ino, seen.st_mtime_ns)
        if self._listed is not None and self._listed[0] == stamp:
            return list(self._listed[1])
        with os.scandir(self._folder) as entries:
            names = sorted(
                entry.name.removesuffix(_SUFFIX)
                for entry in entries
                if entry.name.endswith(_SUFFIX) and not entry.name.startswith(".")
            )
        # Two changes within one tick of the clock leave the same time behind.
        is_settled = time.time_ns() - seen.st_mtime_ns > _SETTLED_NS
        self._listed = (stamp, names) if is_settled else None
        return list(names)

    def has(self, name: str) -> bool:
        is_own = _NAME.fullmatch(name) is not None and self._file(name).is_file()
        return is_own or self.is_built_in(name)

    def is_built_in(self, name: str) -> bool:
        """It comes along, and no voice of this folder has taken its name."""
        return (
            self._built_in is not None
            and self._built_in.has(name)
            and not self._file(name).exists()
        )

    def put(self, name: str, data: bytes) -> Path:
        """Keep a file under a name that is not taken yet; it is there when it is whole."""
        file = self.check_free(name)
        _make_private(self._folder)
        draft = file.with_name(f".{name}.{uuid4().hex[:8]}")
        try:
            _write(draft, data)
            try:
                os.link(draft, file)  # unlike replace, fails if another one was quicker
            except FileExistsError:
                raise _taken(name) from None
            except OSError:  # a file system without hard links
                draft.replace(file)
            _sync(self._folder)
        finally:
            with suppress(OSError):
                draft.unlink(missing_ok=True)
        return file

    def check_free(self, name: str) -> Path:
        """Where a new voice of that name will be."""
        file = self._file(name)
        if file.exists():
            raise _taken(name)
        return file

    def find(self, name: str) -> Path:
        """The file of a voice that is there."""
        file = self._file(name)
        if self._built_in is not None and self.is_built_in(name):
            return self._built_in.find(name)
        if not file.is_file():
            raise VoiceError(f"there is no voice {name!r}; {suggestion(name, self.names())}")
        return file

    def export(self, name: str, to: Path, *, overwrite: bool = False) -> Path:
        """Copy a voice's file elsewhere, into a folder under its name; returns where it is now."""
        source = self.find(name)
        file = to / source.name if to.is_dir() else to
        if file.exists() and (not overwrite or file.samefile(source)):
            raise OptionError(f"{file} exists already; take another name, or overwrite it: --force")
        draft = file.with_name(f".{file.name}.{uuid4().hex[:8]}")
        try:
            _write(draft, source.read_bytes())
            draft.replace(file)
        except OSError as error:
            raise OptionError(f"{file} cannot be written: {error.strerror}") from error
        finally:
            with suppress(OSError):
                draft.unlink(missing_ok=True)
        return file

    def remove(self, name: str) -> None:
        if self.is_built_in(name):
            raise VoiceError(f"the voice {name!r} is built in, and cannot be deleted")
        self.find(name).unlink()
        _sync(self._folder)

    def _file(self, name: str) -> Path:
        if not _NAME.fullmatch(name):
            raise VoiceError(
                f"{name[:100]!r} cannot name a voice: take 1 to 64 of a-z, 0-9, - and _, "
                "a letter first"
            )
        return self._folder / f"{name}{_SUFFIX}"


def suggestion(name: str, *lists: list[str]) -> str:
    """What to say of a name that is in none of these sorted lists: a few names close to it."""
    n_names = sum(map(len, lists))
    if not n_names:
        return "there are none yet: make one with `nightingale voice add`"
    near = sorted({found for names in lists for found in _near(name, names)})
    if n_names <= _N_CLOSE:
        return f"there are: {', '.join(near)}"
    close = difflib.get_close_matches(name[:64], near, n=_N_CLOSE)
    return f"did you mean {', '.join(close)}?" if close else f"there are {n_names} others"


def _near(name: str, names: list[str]) -> list[str]:
    """Those that stand beside it in the alphabet: comparing all of 20,000 would take long."""
    at = bisect_left(names, name)
    return names[max(0, at - _N_COMPARED // 2) : at + _N_COMPARED // 2]


def _taken(name: str) -> VoiceError:
    return VoiceError(f"there is a voice {name!r} already; remove it first, or take another")


def _make_private(folder: Path) -> None:
    """A folder for its owner alone, and so are those above it that are new."""
    if not folder.parent.exists():
        _make_private(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)
    with suppress(PermissionError):  # somebody else's folder
        folder.chmod(0o700)


def _write(file: Path, data: bytes) -> None:
    """A new file for its owner alone, on the disk when this returns."""
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as stream:
        stream.write(data)
        stream.flush()
        os.fsync(stream.fileno())


def _sync(folder: Path) -> None:
    """So that a new or removed name outlives a power failure, where folders can be synced."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
