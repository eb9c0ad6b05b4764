"""Finding pulled files again, and noticing what happened to them."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from nightingale.errors import CorruptFileError, NotPulledError
from nightingale.weights import manifest
from nightingale.weights.catalog import Model, RemoteFile, find
from nightingale.weights.folder import find_in
from nightingale.weights.manifest import (
    BUNDLE,
    SUMS,
    FileStamp,
    check_sums,
    git_blob_of,
    locate,
    remember,
    sha256_of,
)

PART = RemoteFile("t3", "org/one", "main", "t3.safetensors")
MODEL = Model("one", "nano", "one file", ("en",), 1, (PART,))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A pulled model of one file."""
    file = tmp_path / "t3.safetensors"
    file.write_bytes(b"the true content")
    remember(MODEL, {PART: FileStamp.take(file)}, tmp_path)
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


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The files that were read for their hash."""
    files: list[Path] = []

    def counted(file: Path) -> str:
        files.append(file)
        return sha256_of(file)

    monkeypatch.setattr(manifest, "sha256_of", counted)
    return files


def test_an_untouched_file_is_not_read_again(file: Path, hashed: list[Path]) -> None:
    for _ in range(3):
        assert locate(MODEL, file.parent) == {"t3": file}
    assert not hashed


def test_a_touched_file_is_read_once_and_then_trusted_again(file: Path, hashed: list[Path]) -> None:
    os.utime(file, ns=(0, 1_000))
    for _ in range(3):
        assert locate(MODEL, file.parent) == {"t3": file}
    assert len(hashed) == 1


def test_setting_the_time_back_does_not_hide_a_change(file: Path) -> None:
    seen = file.stat()
    file.write_bytes(b"the fake content")
    os.utime(file, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    with pytest.raises(CorruptFileError, match="was changed after it was pulled"):
        locate(MODEL, file.parent)


def test_a_record_of_an_older_version_costs_one_reading(file: Path, hashed: list[Path]) -> None:
    kept = file.parent / "pulled/one.json"
    old = json.loads(kept.read_text())
    for name in ("ctime_ns", "inode"):
        del old["files"][0]["stamp"][name]
    kept.write_text(json.dumps(old))
    for _ in range(2):
        assert locate(MODEL, file.parent) == {"t3": file}
    assert len(hashed) == 1


def test_a_digest_is_computed_once_while_a_file_is_the_same(
    tmp_path: Path, hashed: list[Path]
) -> None:
    file = tmp_path / "own.safetensors"
    file.write_bytes(b"one")
    first = manifest.digest_of(file, tmp_path)
    assert first == manifest.digest_of(file, tmp_path) == hashlib.sha256(b"one").hexdigest()
    assert len(hashed) == 1
    seen = file.stat()
    file.write_bytes(b"two")
    os.utime(file, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    assert manifest.digest_of(file, tmp_path) == hashlib.sha256(b"two").hexdigest()
    (kept,) = (tmp_path / "digests").iterdir()
    kept.write_text("{}")
    assert manifest.digest_of(file, tmp_path) == hashlib.sha256(b"two").hexdigest()


@pytest.mark.slow
def test_the_bundled_model_is_what_its_sums_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = {line.split()[1] for line in (BUNDLE / SUMS).read_text().splitlines()}
    weights_files = {file.name for file in BUNDLE.glob("*.safetensors")}
    assert listed == {"tokenizer.json", "pronunciations.txt", *weights_files}
    shutil.copytree(BUNDLE, tmp_path / "bundle")
    monkeypatch.setattr(manifest, "BUNDLE", tmp_path / "bundle")
    model = find("fledgling")
    assert len(locate(model, tmp_path)) == len(model.parts)
    weights = bytearray((tmp_path / "bundle/ve.safetensors").read_bytes())
    weights[-1] ^= 1  # one bit, in the last weight
    (tmp_path / "bundle/ve.safetensors").write_bytes(weights)
    with pytest.raises(CorruptFileError, match=r"ve\.safetensors is not the file that SHA256SUMS"):
        locate(model, tmp_path)
    with pytest.raises(CorruptFileError, match="delete SHA256SUMS"):
        find_in(tmp_path / "bundle", tmp_path)
    (tmp_path / "bundle" / SUMS).unlink()
    assert find_in(tmp_path / "bundle", tmp_path)[0].name == "fledgling"  # a folder of one's own
    with pytest.raises(CorruptFileError, match="reinstall"):
        locate(model, tmp_path)


@pytest.mark.parametrize("line", ["nonsense", f"{'0' * 64}  ../t3.safetensors", "0  a"])
def test_sums_that_cannot_be_read_are_refused(tmp_path: Path, line: str) -> None:
    assert not check_sums(tmp_path)
    (tmp_path / SUMS).write_text(line)
    with pytest.raises(CorruptFileError, match="is no line of it"):
        check_sums(tmp_path)


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
