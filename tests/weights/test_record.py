"""Finding pulled files again, and noticing what happened to them."""

from __future__ import annotations

import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from nightingale.errors import CorruptFileError, NotPulledError
from nightingale.weights.catalog import Model, RemoteFile
from nightingale.weights.record import Stamp, git_blob_of, locate, remember

PART = RemoteFile("t3", "org/one", "main", "t3.safetensors")
MODEL = Model("one", "nano", "one file", ("en",), 1, (PART,))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A pulled model of one file."""
    file = tmp_path / "t3.safetensors"
    file.write_bytes(b"the true content")
    remember(MODEL, {PART: Stamp.take(file)}, tmp_path)
    return file


def test_a_pulled_file_is_found(file: Path) -> None:
    assert locate(MODEL, file.parent) == {"t3": file}


def test_what_was_never_pulled_names_the_command(tmp_path: Path) -> None:
    with pytest.raises(NotPulledError, match="`nightingale pull one`"):
        locate(MODEL, tmp_path)


def test_a_deleted_file_names_itself_and_the_command(file: Path) -> None:
    file.unlink()
    with pytest.raises(NotPulledError, match=r"t3\.safetensors.*`nightingale pull one`"):
        locate(MODEL, file.parent)


@pytest.mark.parametrize("content", [b"the true", b"the fake content"])
def test_a_changed_file_is_refused_by_name(content: bytes, file: Path) -> None:
    file.write_bytes(content)
    os.utime(file, ns=(0, 0))
    with pytest.raises(CorruptFileError, match=r"t3\.safetensors.*`nightingale pull one`"):
        locate(MODEL, file.parent)


def test_an_untouched_file_is_not_read_again(file: Path) -> None:
    seen = file.stat()
    file.write_bytes(b"the fake content")
    os.utime(file, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    assert locate(MODEL, file.parent) == {"t3": file}


def test_a_touched_file_is_read_once_and_then_trusted_again(file: Path) -> None:
    os.utime(file, ns=(0, 1_000))
    assert locate(MODEL, file.parent) == {"t3": file}
    file.write_bytes(b"the fake content")
    os.utime(file, ns=(0, 1_000))
    assert locate(MODEL, file.parent) == {"t3": file}


@pytest.mark.parametrize("part", [replace(PART, revision="v2"), replace(PART, sha256="0" * 64)])
def test_a_catalog_that_wants_another_file_asks_for_a_pull(part: RemoteFile, file: Path) -> None:
    with pytest.raises(NotPulledError):
        locate(replace(MODEL, parts=(part,)), file.parent)


@pytest.mark.parametrize("text", ["", "{}", '{"files": [{}]}', '{"files": [{"part": {"a": 1}}]}'])
def test_a_record_that_cannot_be_read_asks_for_a_pull(text: str, file: Path) -> None:
    (file.parent / "pulled" / "one.json").write_text(text)
    with pytest.raises(NotPulledError):
        locate(MODEL, file.parent)


def test_a_record_leaves_no_drafts_behind(file: Path) -> None:
    assert [path.name for path in (file.parent / "pulled").iterdir()] == ["one.json"]


def test_small_files_are_named_as_git_names_them(file: Path) -> None:
    said = subprocess.run(["git", "hash-object", file], capture_output=True, text=True, check=True)
    assert git_blob_of(file) == said.stdout.strip()
