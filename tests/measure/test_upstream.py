"""The comparison with upstream says what it needs; that it compares is shown in tests/parity."""

from __future__ import annotations

from pathlib import Path

import pytest

from nightingale.errors import OptionError
from nightingale.measure.upstream import against_upstream


def test_without_upstream_it_says_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="scripts/upstream"):
        against_upstream(tmp_path / "python", "reference", 1)


def test_what_went_wrong_over_there_is_told(tmp_path: Path) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho 'no module named chatterbox' >&2\nexit 1\n")
    broken.chmod(0o755)
    with pytest.raises(OptionError, match="no module named chatterbox"):
        against_upstream(broken, "reference", 1)
