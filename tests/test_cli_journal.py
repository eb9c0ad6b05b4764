"""The journal of an interrupted run: whatever is cut off, what is whole comes back."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from nightingale.cli.journal import MAGIC, Journal, Kept, difference, place
from nightingale.cli.resume import _behind
from nightingale.errors import ResumeError

FINGERPRINT = {"text": "0" * 64, "seed": "7"}
CHUNKS: list[NDArray[np.float32]] = [
    (np.arange(n) / 8 + number).astype(np.float32) for number, n in enumerate((3, 1, 2, 4))
]


def filled(path: Path) -> list[tuple[int, int, int]]:
    """A journal of four chunks in two parts; how long it was, with how many samples and parts."""
    journal = Journal.create(path, FINGERPRINT)
    stages = []
    for number, samples in enumerate(CHUNKS):
        journal.append(samples)
        stages.append((path.stat().st_size, journal.kept.n_samples, journal.kept.n_parts))
        if number in (0, 2):
            journal.end_part(journal.kept.n_parts + 1, is_complete=True)
            stages.append((path.stat().st_size, journal.kept.n_samples, journal.kept.n_parts))
    journal.end(is_complete=False)
    stages.append((path.stat().st_size, journal.kept.n_samples, journal.kept.n_parts))
    journal.close()
    return stages


def content(journal: Journal) -> NDArray[np.float32]:
    return np.concatenate(list(journal.samples()))


def test_what_is_kept_comes_back(tmp_path: Path) -> None:
    path = place(tmp_path / "book.wav")
    assert path.name == "book.wav.partial"
    filled(path)
    journal = Journal.open(path)
    assert journal is not None
    assert journal.fingerprint == FINGERPRINT
    assert (journal.kept.n_samples, journal.kept.n_parts) == (10, 2)
    assert (journal.kept.is_ended, journal.kept.is_complete) == (True, False)
    assert (content(journal) == np.concatenate(CHUNKS)).all()
    journal.delete()
    assert not path.exists()
    assert Journal.open(path) is None


@pytest.mark.slow
def test_a_torn_tail_is_cut_off_at_every_byte(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda _file: None)  # hundreds of times: seconds
    whole = tmp_path / "whole"
    stages = filled(whole)
    data, every = whole.read_bytes(), np.concatenate(CHUNKS)
    path = tmp_path / "torn"
    for n_bytes in range(len(data)):
        path.write_bytes(data[:n_bytes])
        journal = Journal.open(path)
        n_samples, n_parts = max(
            ((samples, parts) for size, samples, parts in stages if size <= n_bytes),
            default=(0, 0),
        )
        if journal is None:
            assert n_samples == 0
            continue
        assert (journal.kept.n_samples, journal.kept.n_parts) == (n_samples, n_parts), n_bytes
        assert not journal.kept.is_ended
        assert (content(journal) == every[:n_samples]).all()
        journal.append(every[n_samples:])  # and it goes on behind what is whole
        journal.close()
        again = Journal.open(path)
        assert again is not None
        assert (content(again) == every).all()
        again.close()


def test_a_changed_byte_is_found(tmp_path: Path) -> None:
    """In any sample; also zeros that a power cut leaves at the end."""
    path = tmp_path / "journal"
    stages = filled(path)
    data = bytearray(path.read_bytes())
    data[stages[0][0] - 1] ^= 1
    path.write_bytes(data)
    assert Journal.open(path) is None  # the first chunk is damaged: nothing is left
    filled(path)
    path.write_bytes(path.read_bytes()[: stages[2][0]] + bytes(100))
    journal = Journal.open(path)
    assert journal is not None
    assert journal.kept.n_samples == stages[2][1]
    journal.close()


def test_a_part_that_is_not_whole_can_be_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    stages = filled(path)
    path.write_bytes(path.read_bytes()[: stages[-2][0]])  # four chunks, the last one of no part
    journal = Journal.open(path)
    assert journal is not None
    journal.cut_to_part()
    assert (journal.kept.n_samples, journal.kept.n_parts) == (6, 2)
    assert (content(journal) == np.concatenate(CHUNKS[:3])).all()
    skipped = list(_behind(iter(CHUNKS), journal.kept))  # its sum is of what is left
    assert (np.concatenate(skipped) == CHUNKS[3]).all()
    journal.close()


def test_a_part_that_was_cut_off_is_not_forgotten_by_a_resumed_run(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    first = Journal.create(path, FINGERPRINT)
    first.append(CHUNKS[0])
    first.end_part(1, is_complete=False)
    first.close()
    resumed = Journal.open(path)
    assert resumed is not None
    resumed.append(CHUNKS[1])
    resumed.end_part(2, is_complete=True)  # the second run itself said everything
    resumed.end(is_complete=True)
    resumed.close()
    found = Journal.open(path)
    assert found is not None
    assert not found.kept.is_complete
    found.close()


def test_a_file_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.wav.partial"
    path.write_bytes(b"a browser's download")
    with pytest.raises(ResumeError, match="is not a file of Nightingale"):
        Journal.open(path)
    assert path.read_bytes() == b"a browser's download"
    path.write_bytes(MAGIC[:5])  # ours, killed at once
    assert Journal.open(path) is None


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no flock there")
def test_two_processes_do_not_share_a_journal(tmp_path: Path) -> None:
    journal = Journal.create(tmp_path / "journal", FINGERPRINT)
    code = (
        "import sys; from pathlib import Path; from nightingale.cli.journal import Journal\n"
        "Journal.create(Path(sys.argv[1]), {})"
    )
    command = [sys.executable, "-c", code, str(journal.path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "another process is writing" in done.stderr
    journal.append(CHUNKS[0])
    journal.close()
    found = Journal.open(journal.path)
    assert found is not None
    assert found.kept.n_samples == 3
    found.close()


def test_a_difference_is_named() -> None:
    assert difference(FINGERPRINT, FINGERPRINT) == ""
    other = {"text": "1" * 64, "seed": "8"}
    assert difference(FINGERPRINT, other) == "another text, seed 7 (now 8)"


def test_kept_samples_are_compared_before_more_are_added(tmp_path: Path) -> None:
    path, every = tmp_path / "journal", np.concatenate(CHUNKS)
    journal = Journal.create(path, FINGERPRINT)
    journal.append(every[:5])
    journal.close()
    found = Journal.open(path)
    assert found is not None
    found.close()
    assert (np.concatenate(list(_behind(iter(CHUNKS), found.kept))) == every[5:]).all()
    with pytest.raises(ResumeError, match="are not what this machine speaks now"):
        list(_behind(iter([every + np.float32(1e-6)]), found.kept))
    with pytest.raises(ResumeError, match="are not what"):
        list(_behind(iter([every[:4]]), found.kept))  # shorter than what is kept
    assert (np.concatenate(list(_behind(iter(CHUNKS), Kept()))) == every).all()
