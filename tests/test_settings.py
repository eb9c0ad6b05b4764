"""What the environment may say."""

from __future__ import annotations

from pathlib import Path

import pytest

from nightingale.errors import SettingsError
from nightingale.settings import Settings


def test_home_has_a_default_and_can_be_moved() -> None:
    assert Settings.read({}).home == Path.home() / ".nightingale"
    assert Settings.read({"NIGHTINGALE_HOME": "/data/birds"}).home == Path("/data/birds")


def test_a_misspelt_variable_is_refused_by_name() -> None:
    with pytest.raises(SettingsError, match=r"NIGHTINGALE_HOMME.*known are .*NIGHTINGALE_HOME"):
        Settings.read({"NIGHTINGALE_HOMME": "/data", "PATH": "/bin"})
