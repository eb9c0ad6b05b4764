"""Names that clients give for voices -> voice files, and which API key may see which.

A voice belongs to the key that uploaded it and lies in that key's folder, so that two keys can use
one name. Voices of the `nightingale voice` command, of administrators and of servers without keys
are shared: every key may use them, only an administrator may delete them. Voices that come with the
model are there unless one of the same name is. Voice files are read here, and never interpreted.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from nightingale.core import DEFAULT_VOICE
from nightingale.errors import VoiceError
from nightingale.server.keys import ANYBODY, Key
from nightingale.voice.folder import BUILT_IN, MAX_BYTES, Folder, suggestion

OPENAI = (
    *("alloy", "ash", "ballad", "cedar", "coral", "echo", "fable", "juniper", "marin"),
    *("nova", "onyx", "sage", "shimmer", "verse"),
)
DEFAULT = DEFAULT_VOICE
RESERVED = frozenset((DEFAULT, "nightingale", "s1", *OPENAI))  # mean the model's own voice
_SUFFIXES = (
    *(".wav", ".mp3", ".flac", ".ogg", ".opus", ".m4a", ".aac", ".mp4", ".webm"),
    ".safetensors",
)
_PLAIN = re.compile(r"[a-z0-9_-]{1,64}")
_MAX_CACHED = 64


@dataclass(frozen=True, slots=True)
class VoiceFile:
    """A voice as it goes over the wire."""

    digest: str | None = None  # None: the model's own
    data: bytes = b""


class Voices:
    """Voices by the names that a key knows them by."""

    def __init__(
        self,
        folder: Path,
        open_folder: Callable[[Path], Folder] = Folder,
        built_in: Path | None = None,
    ) -> None:
        self._shared, self._owned = open_folder(folder), folder / "keys"
        self._built_in = None if built_in is None else Folder(built_in)
        self._open_folder = open_folder
        self._folders: dict[str, Folder] = {}
        self._cache: dict[Path, tuple[tuple[int, int], VoiceFile]] = {}

    def names(self, key: Key = ANYBODY) -> list[str]:
        """The default voice, and those that this key may use; others' as `owner:name`."""
        cloned, built_in = self.cloned(key), self.built_in()
        return [DEFAULT, *(sorted({*cloned, *built_in}) if built_in else cloned)]

    def cloned(self, key: Key = ANYBODY) -> list[str]:
        """Likewise, without those that come with the model."""
        own = self._own_names(key)
        shared = self._shared.names()
        return sorted({*shared, *own}) if own else shared

    def built_in(self) -> list[str]:
        """Those that come with the model, besides the default voice."""
        return self._built_in.names() if self._built_in else []

    def _own_names(self, key: Key) -> list[str]:
        """Sorted: of the voices that are not shared, those that this key may use."""
        if key.admin and self._owned.is_dir():
            owners = sorted(owner.name for owner in self._owned.iterdir())
            return [f"{owner}:{name}" for owner in owners for name in self._folder(owner).names()]
        return [] if key is ANYBODY or key.admin else self._folder(key.name).names()

    def find(self, name: str | None, key: Key = ANYBODY) -> VoiceFile:
        """By any name that a client may know it by; a voice of one's own goes first."""
        plain = _plain(name or "")
        for folder, stem in self._places(plain, key):
            if folder.has(stem):
                with suppress(FileNotFoundError):  # deleted just now
                    return self._read(folder.find(stem))
        if self._built_in is not None and self._built_in.has(plain):
            return self._read(self._built_in.find(plain))
        if plain in RESERVED or not plain:
            return VoiceFile()
        raise self._unknown(name or "", key)

    def check_free(self, name: str, key: Key = ANYBODY) -> None:
        """Refuse a name for a new voice that is reserved, taken or no name."""
        if name in RESERVED:
            raise VoiceError(
                f"{name!r} is reserved: it means the default voice; choose another name"
            )
        for folder, stem in self._places(name, key):
            folder.check_free(stem)

    def put(self, name: str, data: bytes, key: Key = ANYBODY) -> VoiceFile:
        """Store a new voice for this key."""
        self.check_free(name, key)
        folder = self._shared if _is_operator(key) else self._folder(key.name)
        return self._read(folder.put(name, data))

    def remove(self, name: str, key: Key = ANYBODY) -> VoiceFile:
        """Delete a voice that belongs to this key; its content, for those who keep copies."""
        for folder, stem in self._places(_plain(name), key):
            if folder.has(stem):
                if folder is self._shared and not _is_operator(key):
                    raise VoiceError(
                        f"the voice {name!r} is shared by all API keys; only a key with "
                        "admin = true can delete it"
                    )
                file = folder.find(stem)
                found = self._read(file)
                folder.remove(stem)
                self._cache.pop(file, None)
                return found
        if self._built_in is not None and self._built_in.has(_plain(name)):
            raise VoiceError(f"the voice {name!r} is built in, and cannot be deleted")
        raise self._unknown(name, key)

    def _places(self, plain: str, key: Key) -> list[tuple[Folder, str]]:
        """Where this key may find a name, and how it is called there."""
        owner, _, stem = plain.rpartition(":")
        if owner:
            may_look = key.admin or (key is not ANYBODY and owner == _slug(key.name))
            return [(self._folder(owner), stem)] if may_look else []
        shared = [(self._shared, plain)]
        return shared if _is_operator(key) else [(self._folder(key.name), plain), *shared]

    def _folder(self, owner: str) -> Folder:
        slug = _slug(owner)
        if slug not in self._folders:
            self._folders[slug] = self._open_folder(self._owned / slug)
        return self._folders[slug]

    def _read(self, file: Path) -> VoiceFile:
        state = file.stat()
        stamp = (state.st_mtime_ns, state.st_size)
        kept = self._cache.get(file)
        if kept is not None and kept[0] == stamp:
            return kept[1]
        if state.st_size > MAX_BYTES:
            raise VoiceError("this voice's file is larger than any voice file")
        data = file.read_bytes()
        found = VoiceFile(hashlib.sha256(data).hexdigest(), data)
        if len(self._cache) >= _MAX_CACHED:
            self._cache.clear()
        self._cache[file] = (stamp, found)
        return found

    def _unknown(self, name: str, key: Key) -> VoiceError:
        lists = (self._own_names(key), self._shared.names(), self.built_in())
        known = suggestion(_plain(name), [DEFAULT], *lists)
        return VoiceError(f"there is no voice {name[:100]!r}; {known}")


def built_in_voices(family: object) -> Path | None:
    """The folder of those that come with the model that speaks."""
    return BUILT_IN if family == "fledgling" else None


def _is_operator(key: Key) -> bool:
    """Whose voices are shared: nobody else is there, or the key is an administrator's."""
    return key is ANYBODY or key.admin


def _slug(owner: str) -> str:
    """A folder's name for a key: its own if that is plain, else a hash of it."""
    if _PLAIN.fullmatch(owner):
        return owner
    return f"sha256-{hashlib.sha256(owner.encode()).hexdigest()[:32]}"


def _plain(name: str) -> str:
    """As the library would call it: without the ending and the capitals that clients add."""
    plain = name.strip().lower()
    for suffix in _SUFFIXES:
        plain = plain.removesuffix(suffix)
    return plain
