"""What `nightingale serve` says before it serves."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from nightingale.cli.serve import _seconds
from nightingale.errors import OptionError

WITHOUT = "import sys; sys.modules[{0!r}] = None; from nightingale.cli import app; app(['serve'])"


@pytest.mark.parametrize("package", ["fastapi", "uvicorn", "prometheus_client", "wyoming"])
def test_a_missing_package_is_named_with_the_command_that_brings_it(
    package: str, tmp_path: Path
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT.format(package)],
        env={"NIGHTINGALE_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    told = " ".join(done.stderr.split())
    assert package in told
    assert "pip install 'nightingale-tts[server]'" in told


def test_how_long_an_idle_model_stays() -> None:
    assert [_seconds(text) for text in ("300", "5m", "2h", "0.5s", "-1")] == [
        300,
        300,
        7200,
        0.5,
        None,
    ]
    with pytest.raises(OptionError, match="5m, 2h"):
        _seconds("a while")
