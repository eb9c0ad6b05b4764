"""What was spoken so far, kept beside the output file until that is whole.

One file, only ever appended to: a head that says which request it belongs to, then samples as they
are made, a mark where each part of the text ends, and a mark at the end. Every record carries a
checksum, so that what a killed process left half-written is recognized and cut off. Knows nothing
of models, formats or terminals.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import sys
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from nightingale.core import SAMPLES_PER_SECOND
from nightingale.errors import OptionError, ResumeError

MAGIC = b"nightingale journal 1\n"
_RECORD = struct.Struct("<4sII")  # kind, bytes that follow, CRC-32 of kind and bytes
_HEAD, _SAMPLES, _PART, _END = b"HEAD", b"SMPL", b"PART", b"DONE"
_MAX_PAYLOAD = 2**28  # 46 minutes in one chunk: more is not ours

_N_DIGEST = 64  # letters of a SHA-256: nothing that a person wants to read

Fingerprint = Mapping[str, str]


def place(output: Path) -> Path:
    """Where the journal of an output file lies."""
    return output.with_name(f"{output.name}.partial")


@dataclass(slots=True)
class Kept:
    """What a journal holds."""

    n_samples: int = 0
    n_parts: int = 0  # parts of the text that are whole
    checkpoint: dict[str, Any] | None = None  # behind the last of them
    is_ended: bool = False  # everything was spoken; only the output file is missing
    is_complete: bool = True  # False: a part of the text was not said
    sha256: str = hashlib.sha256().hexdigest()  # of all samples, when it was opened

    @property
    def seconds(self) -> float:
        return self.n_samples / SAMPLES_PER_SECOND


class Journal:
    """An open journal: one process has it at a time."""

    def __init__(self, path: Path, file: BinaryIO, fingerprint: Fingerprint, kept: Kept) -> None:
        self.path, self.fingerprint, self.kept = path, fingerprint, kept
        self._file = file

    @classmethod
    def create(cls, path: Path, fingerprint: Fingerprint) -> Journal:
        """An empty one, in the place of whatever journal was there."""
        file = _opened(path)
        try:
            file.truncate(0)
            journal = cls(path, file, dict(fingerprint), Kept())
            head = json.dumps(journal.fingerprint, sort_keys=True).encode()
            journal._write(MAGIC + _record(_HEAD, head))
        except BaseException:
            file.close()
            raise
        _sync_folder(path.parent)
        return journal

    @classmethod
    def open(cls, path: Path) -> Journal | None:
        """The one that is there, without what was written by half; None: nothing worth keeping."""
        if not path.exists():
            return None
        file = _opened(path)
        try:
            found = _scan(path, file)
        except BaseException:
            file.close()
            raise
        if found is None:
            file.close()
            return None
        fingerprint, kept, n_bytes = found
        _cut(file, n_bytes)
        return cls(path, file, fingerprint, kept)

    def cut_to_part(self) -> None:
        """Forget what was spoken of a part that is not whole."""
        found = _scan(self.path, self._file, to_part=True)
        assert found is not None
        _, self.kept, n_bytes = found
        _cut(self._file, n_bytes)

    def append(self, samples: NDArray[np.float32]) -> None:
        """Keep a chunk: once this returns, it survives whatever happens to the process."""
        data = samples.astype("<f4").tobytes()
        self._write(_record(_SAMPLES, data))
        self.kept.n_samples += len(samples)

    def end_part(
        self, n_parts: int, checkpoint: dict[str, Any] | None = None, *, is_complete: bool
    ) -> None:
        """What was appended so far are so many parts of the text, whole."""
        mark: dict[str, Any] = {"n_parts": n_parts, "checkpoint": checkpoint}
        mark["is_complete"] = is_complete and self.kept.is_complete
        self._write(_record(_PART, json.dumps(mark).encode()))
        self.kept = replace(self.kept, **mark)

    def end(self, *, is_complete: bool) -> None:
        """Everything was spoken."""
        is_complete = is_complete and self.kept.is_complete  # earlier runs count, too
        self._write(_record(_END, json.dumps({"is_complete": is_complete}).encode()))
        self.kept.is_ended, self.kept.is_complete = True, is_complete

    def samples(self) -> Iterator[NDArray[np.float32]]:
        """All of them, chunk by chunk: a book is never in memory as a whole."""
        with self.path.open("rb") as file:
            file.seek(len(MAGIC))
            for kind, payload in _records(file):
                if kind == _SAMPLES:
                    yield np.frombuffer(payload, "<f4").astype(np.float32, copy=False)

    def close(self) -> None:
        """Leave it for another run."""
        self._file.close()

    def delete(self) -> None:
        """The output file is whole, or nothing is worth keeping."""
        self._file.close()
        self.path.unlink(missing_ok=True)

    def _write(self, data: bytes) -> None:
        try:
            n_written = 0
            while n_written < len(data):  # a raw file may take less than it is given
                n_written += self._file.write(data[n_written:])
            os.fsync(self._file.fileno())
        except OSError as error:
            raise OptionError(
                f"{self.path} cannot be written: {error.strerror}; the first "
                f"{self.kept.seconds:.1f} s are kept in it, --resume continues from there"
            ) from error


def difference(kept: Fingerprint, wanted: Fingerprint) -> str:
    """What two requests do not have in common; empty if that is nothing."""
    differing = [name for name in wanted if kept.get(name) != wanted[name]]
    return ", ".join(
        f"another {name}"
        if len(wanted[name]) == _N_DIGEST
        else f"{name} {kept.get(name)} (now {wanted[name]})"
        for name in differing
    )


def _opened(path: Path) -> BinaryIO:
    try:
        file = path.open("r+b" if path.exists() else "x+b", buffering=0)
    except OSError as error:
        raise OptionError(f"{path} cannot be written: {error.strerror}") from error
    try:
        _lock(file, path)
    except BaseException:
        file.close()
        raise
    return file


def _lock(file: Any, path: Path) -> None:
    """Two runs with one output would mix their samples."""
    if sys.platform == "win32":
        return
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise ResumeError(
            f"another process is writing {path}; wait for its end, or choose another output file"
        ) from error


def _record(kind: bytes, payload: bytes) -> bytes:
    return _RECORD.pack(kind, len(payload), zlib.crc32(kind + payload)) + payload


def _records(file: BinaryIO) -> Iterator[tuple[bytes, bytes]]:
    """Those that are whole, up to the first that is not."""
    while len(head := file.read(_RECORD.size)) == _RECORD.size:
        kind, n_bytes, crc = _RECORD.unpack(head)
        payload = file.read(n_bytes) if n_bytes <= _MAX_PAYLOAD else b""
        if len(payload) != n_bytes or zlib.crc32(kind + payload) != crc:
            return
        yield kind, payload


def _scan(
    path: Path, file: BinaryIO, *, to_part: bool = False
) -> tuple[dict[str, str], Kept, int] | None:
    """Fingerprint, content and length of what is whole; None before there are samples."""
    file.seek(0)
    begin = file.read(len(MAGIC))
    if not MAGIC.startswith(begin):
        raise ResumeError(f"{path} is not a file of Nightingale; move it away, or take another -o")
    records = _records(file)
    kind, payload = next(records, (b"", b""))
    if kind != _HEAD:
        return None
    fingerprint: dict[str, str] = json.loads(payload)
    kept, summed = Kept(), hashlib.sha256()
    n_bytes = len(MAGIC) + _RECORD.size + len(payload)
    at_part = replace(kept), n_bytes
    for kind, payload in records:
        n_bytes += _RECORD.size + len(payload)
        if kind == _SAMPLES:
            kept.n_samples += len(payload) // 4
            summed.update(payload)
        elif kind == _PART:
            kept = replace(kept, **json.loads(payload), sha256=summed.hexdigest())
            at_part = replace(kept), n_bytes
        elif kind == _END:
            kept = replace(kept, **json.loads(payload), is_ended=True)
    if to_part:
        return fingerprint, *at_part
    kept.sha256 = summed.hexdigest()
    return (fingerprint, kept, n_bytes) if kept.n_samples else None


def _cut(file: BinaryIO, n_bytes: int) -> None:
    file.truncate(n_bytes)
    file.seek(n_bytes)


def _sync_folder(folder: Path) -> None:
    """A new file's name survives a power cut only if its folder was written, too."""
    if sys.platform == "win32":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
