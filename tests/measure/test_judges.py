"""Judges are known by the hash of their files."""

from __future__ import annotations

from pathlib import Path

import pytest

from nightingale.errors import CorruptFileError, NotPulledError
from nightingale.measure.judges import ECAPA, locate


def test_judges_that_are_absent_or_others_are_refused(tmp_path: Path) -> None:
    with pytest.raises(NotPulledError, match=r"training\.assets ecapa"):
        locate(tmp_path, ECAPA)
    (tmp_path / "ecapa").mkdir()
    (tmp_path / ECAPA.path).write_bytes(b"another")
    with pytest.raises(CorruptFileError, match="delete it"):
        locate(tmp_path, ECAPA)
