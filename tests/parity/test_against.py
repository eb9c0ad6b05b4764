"""Upstream is timed beside us, on the same weights, in one run."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from nightingale.measure.upstream import against_upstream
from tests.parity.conftest import upstream_python

pytestmark = pytest.mark.parity


def test_a_stage_is_timed_on_both_sides(tmp_path: Path) -> None:
    """With one thread: beside another test, two spin for each other's core."""
    python = tmp_path / "python"
    python.write_text(
        f'#!/bin/sh\nOMP_NUM_THREADS=1 exec {shlex.quote(str(upstream_python()))} "$@"\n'
    )
    python.chmod(0o755)
    made = against_upstream(python, "reference", 1, ["vocoder"])["vocoder"]
    assert made["ours_ms"] > 0
    assert made["upstream_ms"] > 0
    assert abs(made["ratio"] - made["upstream_ms"] / made["ours_ms"]) < 0.05 * made["ratio"]
