"""Sums of files that are kept, and what two workers do not have in common."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import pytest

from nightingale.server import fingerprint
from nightingale.server.fingerprint import difference, sha256_of


def test_a_sum_is_made_once_and_again_when_the_file_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home, file = tmp_path / "home", tmp_path / "weights"
    home.mkdir()
    file.write_bytes(b"one")
    n_read = 0
    usual = hashlib.file_digest

    def counted(*given: object) -> object:
        nonlocal n_read
        n_read += 1
        return usual(*given)  # type: ignore[arg-type]

    monkeypatch.setattr(hashlib, "file_digest", counted)
    assert sha256_of([file], home) == {file: hashlib.sha256(b"one").hexdigest()}
    assert sha256_of([file], home) == {file: hashlib.sha256(b"one").hexdigest()}
    assert n_read == 1
    seen = file.stat()
    file.write_bytes(b"two")  # of the same size, and with the same time of change
    os.utime(file, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    assert sha256_of([file], home) == {file: hashlib.sha256(b"two").hexdigest()}
    assert n_read == 2


def test_the_list_of_sums_is_bounded_and_may_be_broken_or_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fingerprint, "_MAX_KNOWN", 3)
    files = [tmp_path / f"{n}" for n in range(5)]
    for file in files:
        file.write_text(file.name)
    expected = {file: hashlib.sha256(file.name.encode()).hexdigest() for file in files}
    assert sha256_of(files, tmp_path) == expected
    assert len(json.loads((tmp_path / "sums.json").read_text())) == 3
    (tmp_path / "sums.json").write_text("{")
    assert sha256_of(files, tmp_path) == expected
    assert sha256_of(files, tmp_path / "nowhere") == expected


def test_a_difference_names_what_differs_and_not_its_values() -> None:
    one = {"model": "a", "canary": "1", "torch": "2.9"}
    assert difference(one, dict(one)) == ""
    assert difference(one, {**one, "canary": "2"}) == "canary"
    assert difference(one, {"model": "a", "canary": "2"}) == "canary, torch"
