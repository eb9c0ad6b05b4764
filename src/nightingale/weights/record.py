"""What was pulled: where each file lies, and whether it is still the one that was checked.

One small JSON per model. Size and time of change stand for the content, as in git's index: a file
is read again only when one of them has moved, so that finding gigabytes takes no time. Knows
nothing of the hub, nor of what is inside the files.
"""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from uuid import uuid4

from nightingale.errors import CorruptFileError, NotPulledError
from nightingale.weights.catalog import Model, RemoteFile, Role

BUNDLE = Path(__file__).parents[1] / "fledgling"  # the model that comes with the package


@dataclass(frozen=True, slots=True)
class Stamp:
    """A file as it was when it was checked."""

    file: Path
    n_bytes: int
    mtime_ns: int
    sha256: str

    @classmethod
    def take(cls, file: Path) -> Stamp:
        # Looked at before it is read: whatever happens meanwhile shows up as a later time.
        seen = file.stat()
        return cls(file, seen.st_size, seen.st_mtime_ns, sha256_of(file))

    def renewed(self) -> Stamp:
        """This stamp while the file is the same, a newer one after a mere touch."""
        seen = self.file.stat()
        if (seen.st_size, seen.st_mtime_ns) == (self.n_bytes, self.mtime_ns):
            return self
        if seen.st_size == self.n_bytes:
            fresh = Stamp.take(self.file)
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
    renewed: dict[RemoteFile, Stamp] = {}
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


def _bundled(model: Model) -> dict[Role, Path]:
    files = {part.role: BUNDLE / part.path for part in model.parts}
    absent = [file.name for file in files.values() if not file.is_file()]
    if absent:
        raise NotPulledError(
            f"{model.name} should have come with the package, but it lacks {', '.join(absent)}; "
            "reinstall nightingale-tts"
        )
    return files


def remember(model: Model, stamps: dict[RemoteFile, Stamp], home: Path) -> None:
    """Write down what was pulled. The last of two processes wins, and both wrote the truth."""
    files = [
        {"part": asdict(part), "stamp": {**asdict(stamp), "file": str(stamp.file)}}
        for part, stamp in stamps.items()
    ]
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


def _recall(model: Model, home: Path) -> dict[RemoteFile, Stamp]:
    """Nothing, if there is no record or it cannot be read: pulling again costs no download."""
    try:
        entries = json.loads(_record(model, home).read_text(encoding="utf-8"))["files"]
        return {
            RemoteFile(**entry["part"]): Stamp(
                **{**entry["stamp"], "file": Path(entry["stamp"]["file"])}
            )
            for entry in entries
        }
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return {}
