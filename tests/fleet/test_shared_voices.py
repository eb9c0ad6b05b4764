"""Voices of a fleet: by content hash, from a folder or any store of fsspec."""

from __future__ import annotations

import hashlib
from pathlib import Path

import fsspec
import pytest

from nightingale.errors import VoiceError
from nightingale.fleet.voices import SharedFolder
from nightingale.server.voices import Voices


@pytest.fixture(params=["folder", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "store") if request.param == "folder" else f"memory://{tmp_path.name}"


def test_a_voice_put_by_one_replica_is_found_by_another(store: str, tmp_path: Path) -> None:
    one = SharedFolder(tmp_path / "one", store)
    other = Voices(tmp_path / "two", lambda folder: SharedFolder(folder, store))
    one.put("anna", b"a voice")
    found = other.find("anna")
    assert found.data == b"a voice" and found.digest == hashlib.sha256(b"a voice").hexdigest()
    assert other.names() == ["default", "anna"]
    with pytest.raises(VoiceError, match="already"):
        one.put("anna", b"another")
    with pytest.raises(VoiceError, match="there is no voice"):
        other.find("../names/anna")
    one.remove("anna")
    assert not SharedFolder(tmp_path / "three", store).has("anna")


def test_a_voice_that_is_not_what_its_hash_says_is_refused(store: str, tmp_path: Path) -> None:
    SharedFolder(tmp_path / "one", store).put("anna", b"a voice")
    files, root = fsspec.core.url_to_fs(store)
    digest = hashlib.sha256(b"a voice").hexdigest()
    files.pipe_file(f"{root}/sha256/{digest}", b"a trap!")
    with pytest.raises(VoiceError, match="not what its hash says"):
        SharedFolder(tmp_path / "two", store).find("anna")
