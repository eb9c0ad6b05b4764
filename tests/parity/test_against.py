"""Upstream is timed beside us, on the same weights, in one run."""

from __future__ import annotations

import pytest

from nightingale.measure.upstream import against_upstream
from tests.parity.conftest import upstream_python

pytestmark = pytest.mark.parity


def test_a_stage_is_timed_on_both_sides() -> None:
    made = against_upstream(upstream_python(), "reference", 1, ["vocoder"])["vocoder"]
    assert made["ours_ms"] > 0
    assert made["upstream_ms"] > 0
    assert abs(made["ratio"] - made["upstream_ms"] / made["ours_ms"]) < 0.05 * made["ratio"]
