"""Files out of other people's archives are taken only if they are the pinned ones."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from training.assets import ASSETS, AssetError, File, digest, main, present, take

SONG = hashlib.sha256(b"la la").hexdigest()


@pytest.fixture
def unpacked(tmp_path: Path) -> Path:
    folder = tmp_path / "unpacked" / "song"
    folder.mkdir(parents=True)
    (folder / "part1").write_bytes(b"la ")
    (folder / "part2").write_bytes(b"la")
    (folder / "code.py").write_text("raise SystemExit")
    return folder.parent


def test_parts_are_joined_and_kept_if_the_hash_is_right(unpacked: Path, tmp_path: Path) -> None:
    file = File("songs/lala.txt", ("song/part1", "song/part2"), SONG)
    assert not present(file, tmp_path)
    take(file, unpacked, tmp_path)
    assert (tmp_path / "songs/lala.txt").read_bytes() == b"la la"
    assert present(file, tmp_path)
    (tmp_path / "songs/lala.txt").write_bytes(b"la lu")
    assert not present(file, tmp_path)


def test_a_file_with_another_hash_is_not_put_in_its_place(unpacked: Path, tmp_path: Path) -> None:
    with pytest.raises(AssetError, match="is pinned; not used"):
        take(File("songs/lala.txt", ("song/part2", "song/part1"), SONG), unpacked, tmp_path)
    assert not (tmp_path / "songs/lala.txt").exists()


def test_a_folder_has_the_files_of_its_pattern_and_a_hash_of_names_and_contents(
    unpacked: Path, tmp_path: Path
) -> None:
    parts = "".join(
        f"part{i} {hashlib.sha256(text).hexdigest()}\n" for i, text in ((1, b"la "), (2, b"la"))
    )
    wanted = hashlib.sha256(parts.encode()).hexdigest()
    take(File("songs/parts", ("song/part*",), wanted), unpacked, tmp_path)
    assert sorted(path.name for path in (tmp_path / "songs/parts").iterdir()) == ["part1", "part2"]
    assert digest(tmp_path / "songs/parts") == wanted


def test_every_file_is_pinned_and_no_two_have_one_place() -> None:
    files = [file for asset in ASSETS.values() for file in asset.files]
    assert all(len(file.sha256) == 64 for file in files)
    assert len({file.path for file in files}) == len(files)


def test_an_unknown_name_is_refused_before_anything_is_fetched() -> None:
    with pytest.raises(SystemExit, match=r"unknown asset whisky; known are whisper-base"):
        main(["whisky"])
