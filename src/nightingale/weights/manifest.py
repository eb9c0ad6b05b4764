"""What was pulled: where each file lies, and whether it is still the one that was checked.

One small JSON per model. Size, inode and times of change stand for the content, as in git's index:
a file is read again only when one of them has moved, so that finding gigabytes takes no time. A
program that changes a file can set its modification time back, but not its change time (ctime).
The bundled model is small enough to be hashed each time. Knows nothing of the hub, nor of what is
inside the files.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

from nightingale.errors import CorruptFileError, NotPulledError
from nightingale.weights.catalog import Model, RemoteFile, Role

BUNDLE = Path(__file__).parents[1] / "fledgling"  # the model that comes with the package
SUMS = "SHA256SUMS"


@dataclass(frozen=True, slots=True)
class FileStamp:
    """A file as it was when it was checked."""

    file: Path
    n_bytes: int
    mtime_ns: int
    sha256: str
    ctime_ns: int = 0  # records of older versions have neither this nor the next
    inode: int = 0

    @classmethod
    def take(cls, file: Path) -> FileStamp:
        # Looked at before it is read: whatever happens meanwhile shows up as a later time.
        seen, digest = file.stat(), sha256_of(file)
        return cls(file, seen.st_size, seen.st_mtime_ns, digest, seen.st_ctime_ns, seen.st_ino)

    def is_current(self) -> bool:
        """The file has not been touched since."""
        seen = self.file.stat()
        now = (seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns, seen.st_ino)
        return now == (self.n_bytes, self.mtime_ns, self.ctime_ns, self.inode)

    def renewed(self) -> FileStamp:
        """This stamp while the file is the same, a newer one after a mere touch."""
        if self.is_current():
            return self
        seen = self.file.stat()
        if seen.st_size == self.n_bytes:
            fresh = FileStamp.take(self.file)
            if fresh.sha256 == self.sha256:
                return fresh
        raise CorruptFileError(
            f"{self.file} was changed after it was pulled: "
            f"{seen.st_size:,} bytes now, {self.n_bytes:,} bytes with other content then"
        )


def sha256_of(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def git_blob_of(file: Path) -> str:
    """The name that git gives to this content: how the hub names small files."""
    hashed = hashlib.sha1(b"blob %d\0" % file.stat().st_size, usedforsecurity=False)
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: hashed).hexdigest()


def locate(model: Model, home: Path) -> dict[Role, Path]:
    """Where the files of a pulled model lie. Asks no network; refuses a file that was changed."""
    if model.is_bundled:
        return _bundled(model)
    command = f"`nightingale pull {model.name}`"
    stamps = _recall(model, home)
    if stamps.keys() != set(model.parts):
        raise NotPulledError(
            f"the files of {model.name} are not on this machine; get them with {command}"
        )
    renewed: dict[RemoteFile, FileStamp] = {}
    for part, stamp in stamps.items():
        try:
            renewed[part] = stamp.renewed()
        except FileNotFoundError as error:
            raise NotPulledError(
                f"{stamp.file} is not there any more; get it again with {command}"
            ) from error
        except CorruptFileError as error:
            raise CorruptFileError(f"{error}; replace it with {command}") from error
    if renewed != stamps:
        with suppress(OSError):  # a home that cannot be written costs time, nothing else
            remember(model, renewed, home)
    return {part.role: stamp.file for part, stamp in renewed.items()}


def check_sums(folder: Path) -> bool:
    """Refuse a folder with a file that differs from its SHA256SUMS; False if it has none.

    The list has the format of `sha256sum`. Files that it does not name are not judged.
    """
    try:
        lines = (folder / SUMS).read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return False
    for line in lines:
        digest, _, name = line.partition("  ")
        file = folder / name
        if Path(name).name != name or len(digest) != 64:
            raise CorruptFileError(f"{folder / SUMS} is damaged: {line[:80]!r} is no line of it")
        if file.is_file() and sha256_of(file) != digest:
            raise CorruptFileError(
                f"{file} is not the file that {SUMS} beside it names: it was changed or damaged. "
                f"Restore it (reinstall nightingale-tts); or, if you changed it, delete {SUMS}"
            )
    return True


def digest_of(file: Path, home: Path) -> str:
    """The SHA-256 of a file; kept in `home`, so that it is computed once while the file is the
    same."""
    place = hashlib.sha256(str(file.resolve()).encode()).hexdigest()[:32]
    kept = home / "digests" / f"{place}.json"
    with suppress(OSError, ValueError, KeyError, TypeError):
        stamp = _parsed(json.loads(kept.read_text(encoding="utf-8")))
        if stamp.file == file.resolve() and stamp.is_current():
            return stamp.sha256
    fresh = FileStamp.take(file.resolve())
    with suppress(OSError):  # a home that cannot be written costs time, nothing else
        write_text(kept, json.dumps(_plain(fresh)) + "\n")
    return fresh.sha256


def _bundled(model: Model) -> dict[Role, Path]:
    files = {part.role: BUNDLE / part.path for part in model.parts}
    absent = [file.name for file in files.values() if not file.is_file()]
    if absent:
        raise NotPulledError(
            f"{model.name} should have come with the package, but it lacks {', '.join(absent)}; "
            "reinstall nightingale-tts"
        )
    if not check_sums(BUNDLE):
        raise CorruptFileError(f"{BUNDLE / SUMS} is not there; reinstall nightingale-tts")
    return files


def remember(model: Model, stamps: dict[RemoteFile, FileStamp], home: Path) -> None:
    """Write down what was pulled. The last of two processes wins, and both wrote the truth."""
    files = [{"part": asdict(part), "stamp": _plain(stamp)} for part, stamp in stamps.items()]
    write_text(_record(model, home), json.dumps({"files": files}, indent=2) + "\n")


def write_text(file: Path, text: str) -> None:
    """Write a small file so that no reader ever sees half of it."""
    file.parent.mkdir(parents=True, exist_ok=True)
    draft = draft_of(file)
    draft.write_text(text, encoding="utf-8")
    draft.replace(file)


def draft_of(file: Path) -> Path:
    """A name beside `file` that no other process writes to."""
    return file.with_name(f".{file.name}.{uuid4().hex[:8]}")


def _record(model: Model, home: Path) -> Path:
    return home / "pulled" / f"{model.name}.json"


def _recall(model: Model, home: Path) -> dict[RemoteFile, FileStamp]:
    """Nothing, if there is no record or it cannot be read: pulling again costs no download."""
    try:
        entries = json.loads(_record(model, home).read_text(encoding="utf-8"))["files"]
        return {RemoteFile(**entry["part"]): _parsed(entry["stamp"]) for entry in entries}
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return {}


def _plain(stamp: FileStamp) -> dict[str, Any]:
    return {**asdict(stamp), "file": str(stamp.file)}


def _parsed(stamp: dict[str, Any]) -> FileStamp:
    return FileStamp(**{**stamp, "file": Path(stamp["file"])})
