"""What README and quick start show is run, with the model that comes along."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import soundfile

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
QUICK_START = (ROOT / "docs/quick-start.md").read_text(encoding="utf-8")
RECORDING = ROOT / "tests/quality/voices/bf_emma_cloned.ogg"

SITE = ROOT / "tests/backends/torch/pretend_site"

# What cannot be run here: it downloads, takes gigabytes, needs what is not ours, or never ends by
# itself (the server: tests/server).
ELSEWHERE = (
    "pip install",
    "pull multilingual",
    "--language de",
    "my-language-model",
    "--file book.txt",
    "quantize multilingual",
    "--random-weights multilingual",
    "nightingale serve",
)
FEWER = " --sentences 1"  # twenty take minutes


def commands() -> list[str]:
    """Indented lines that call us, each once, without what is explained behind them."""
    lines = re.findall(r"^    (.*\bnightingale .*)$", README + QUICK_START, re.MULTILINE)
    shown = [re.sub(r"\s{2,}#.*", "", line).strip() for line in lines]
    fewer = [line + FEWER if "nightingale verify" in line else line for line in shown]
    return [line for line in dict.fromkeys(fewer) if not any(part in line for part in ELSEWHERE)]


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with somebody's recording in it, and a player that plays nothing."""
    folder = tmp_path_factory.mktemp("desk")
    samples, rate = soundfile.read(RECORDING)
    soundfile.write(folder / "recording.wav", samples, rate)
    tools = folder / "bin"
    tools.mkdir()
    (tools / "nightingale").symlink_to(Path(sys.executable).with_name("nightingale"))
    for player in ("aplay", "ffplay"):
        (tools / player).write_text("#!/bin/sh\ncat > /dev/null\n")
        (tools / player).chmod(0o755)
    return folder


def environment(desk: Path) -> dict[str, str]:
    home = str(desk / "home")
    return {"PATH": f"{desk / 'bin'}:/usr/bin:/bin", "NIGHTINGALE_HOME": home, "HOME": home}


def test_commands_are_found() -> None:
    assert len(commands()) >= 8
    for line in commands():
        assert line.split("|")[-1].split()[0] in ("nightingale", "aplay"), line


def run_all(desk: Path, **more: str) -> None:
    for line in commands():
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", line],
            cwd=desk, env=environment(desk) | more, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, f"{line}\n{done.stderr}"
        if more and "nightingale say" in line:
            assert "on pretend (pretend is the fastest device" in done.stderr, done.stderr
    assert soundfile.info(desk / "hello.wav").duration > 0.3
    assert soundfile.info(desk / "anna.mp3").duration > 0.3


@pytest.mark.timeout(900)
def test_every_command_works_in_this_order(desk: Path) -> None:
    run_all(desk)


@pytest.mark.fullsize
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("kind", ["cuda", "mps"])
def test_every_command_works_where_torch_finds_another_device(desk: Path, kind: str) -> None:
    """On the pretend accelerator, which takes many times as long."""
    home = str(desk / kind)
    run_all(desk, PYTHONPATH=f"{SITE}:{ROOT / 'src'}", PRETEND_AUTO=kind, NIGHTINGALE_HOME=home)


def test_the_python_lines_work(desk: Path) -> None:
    code = re.findall(r"```python\n(.*?)```", README, re.DOTALL)[0]
    code = code.replace('"multilingual"', '"fledgling"')
    code = code.replace("sentences_as_they_come()", "iter(['It is ', 'me.'])")
    code = code.replace("loudspeaker.play(", "print(")
    shutil.rmtree(desk / "python", ignore_errors=True)
    (desk / "python").mkdir()
    shutil.copy(desk / "recording.wav", desk / "python")
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=desk / "python", env=environment(desk), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert soundfile.info(desk / "python/anna.flac").duration > 0.3
