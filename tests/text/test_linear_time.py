"""Cutting and normalizing a text take time in proportion to its length, by a clock."""

from __future__ import annotations

import pytest

from benchmarks import text_time
from nightingale.text.normalization import NormalizedText
from nightingale.text.split import SplitPolicy, TextPart


@pytest.mark.slow
def test_forty_kinds_of_text_are_split_in_linear_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The benchmark measures 20,000 characters. Of 5,000, quadratic time is seen as well (below).

    The machine may be busy: the bar of seconds is ten times that of the benchmark, and a kind
    fails if it fails three times.
    """
    monkeypatch.setattr(text_time, "_N_ROUNDS", 3)
    failed = None
    for _ in range(3):
        rows = text_time.measure(5_000, max_s=10 * text_time.MAX_S)
        assert len({row["kind"] for row in rows}) >= 40
        found = {(row["kind"], row["policy"]) for row in rows if not row["ok"]}
        failed = found if failed is None else failed & found
        if not failed:
            return
    pytest.fail(f"not in linear time: {failed}")


@pytest.mark.slow
def test_a_split_in_quadratic_time_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    def rescan(text: str, _policy: SplitPolicy) -> list[TextPart]:
        n_spaces = 0
        for at in range(0, len(text), 50):
            n_spaces += sum(character.isspace() for character in text[:at])
        return []

    monkeypatch.setattr(text_time, "split", rescan)
    monkeypatch.setattr(text_time, "_N_ROUNDS", 1)
    rows = text_time.measure(4_000)
    assert sum(not row["ok"] for row in rows) > len(rows) / 2


@pytest.mark.slow
def test_dense_figures_are_read_in_bounded_time() -> None:
    """The benchmark reads a million characters of each; here others run: six times the bar."""
    wide = 6 * text_time.MAX_MB_S
    failed = None
    for _ in range(3):
        rows = text_time.dense_rows(2_000, ("en", "zh"), max_mb_s=wide)
        found = {(row["kind"], row["language"]) for row in rows if not row["ok"]}
        failed = found if failed is None else failed & found
        if not failed:
            return
    pytest.fail(f"too slow: {failed}")


@pytest.mark.slow
def test_figures_read_again_for_each_one_are_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    def rescan(text: str, _language: str) -> NormalizedText:
        for at in range(0, len(text), 2):
            sum(character.isspace() for character in text[:at])
        return NormalizedText(text)

    monkeypatch.setattr(text_time, "normalize_text", rescan)
    monkeypatch.setattr(text_time, "DENSE", ("1 ",))
    rows = text_time.dense_rows(3_000, ("en",), max_mb_s=6 * text_time.MAX_MB_S)
    assert all(not row["ok"] for row in rows)
