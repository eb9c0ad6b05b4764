"""The examples run, with the model that comes along."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest
import soundfile

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[1] / "examples"


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A player that keeps what it is given."""
    player = tmp_path / "bin/aplay"
    player.parent.mkdir()
    player.write_text(f"#!/bin/sh\ncat > {tmp_path}/heard.wav\n")
    player.chmod(0o755)
    path = f"{player.parent}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "NIGHTINGALE_HOME": str(tmp_path / "home")}


def run(name: str, *arguments: str | Path, environment: dict[str, str]) -> str:
    command = [sys.executable, str(EXAMPLES / name), *map(str, arguments)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_player_plays(environment: dict[str, str], tmp_path: Path) -> None:
    facts = run("player.py", "Hello there.", environment=environment)
    assert facts.split() == ["Hello", "there."]
    samples, rate = soundfile.read(io.BytesIO((tmp_path / "heard.wav").read_bytes()))
    assert rate == 24_000
    assert samples.any()


def test_the_agent_is_interrupted(environment: dict[str, str]) -> None:
    facts = run("agent.py", environment=environment)
    assert "to the loudspeaker" in facts
    assert "interrupted after 2." in facts
    assert "no word yet" not in facts


def test_the_page_speaks(environment: dict[str, str]) -> None:
    command = [sys.executable, str(EXAMPLES / "browser.py"), "fledgling", "0"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            address = server.stdout.readline().strip()
            with urllib.request.urlopen(address, timeout=60) as page:
                assert b"<form>" in page.read()
            with urllib.request.urlopen(f"{address}/speech?text=Hello+there.", timeout=60) as sound:
                assert sound.headers["Content-Type"] == "audio/wav"
                assert sound.read(4) == b"RIFF"
                assert len(sound.read(10_000)) == 10_000
            with pytest.raises(urllib.error.HTTPError, match="400") as refused:
                urllib.request.urlopen(f"{address}/speech?text=", timeout=60)
            refused.value.close()
        finally:
            server.terminate()
