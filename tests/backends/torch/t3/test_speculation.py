"""Speculative decoding, of which benchmarks/speculation.py says what it would gain, is exact."""

from __future__ import annotations

import pytest

from benchmarks.speculation import identity

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("fault", [False, True])
def test_speculative_tokens_are_those_of_plain_decoding(fault: bool) -> None:
    for found in identity(2, "int8", 2, fault=fault):
        assert found["tokens_per_pass"] > 1.1
        assert found["differ"] == (2 if fault else 0), found
