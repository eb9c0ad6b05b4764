"""Every command on README and in the quick start is run as it is shown, with the bundled model."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import soundfile

from tests.server.running import free_port

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
QUICK_START = (ROOT / "docs/quick-start.md").read_text(encoding="utf-8")
RECORDING = ROOT / "tests/quality/voices/bf_emma_cloned.ogg"
SITE = ROOT / "tests/backends/torch/pretend_site"
SERVE = "nightingale serve"

# What is not run here, and why: a command that is neither run nor listed fails.
NOT_RUN = {
    "pip install": "no index of packages here; scripts/build installs the wheel and lets it speak",
    "nightingale pull multilingual": "downloads 3.2 GB; tests/weights has small ones",
    "nightingale bench --random-weights multilingual --plan": "minutes, and 4.5 GB of memory",
    "nightingale bench --random-weights multilingual --against": "needs the upstream package",
}

# What is changed in a command before it is run: the released weights are not here, time is short.
CHANGED = {
    "--language de": "--language de --model multilingual --max-tokens 20",  # a tiny release
    "nightingale bench": "nightingale bench --trials 1 --seconds 1",
    "verify --plan balanced --plan fast": "verify --plan balanced --plan fast --sentences 1",
}


def commands(text: str = README + QUICK_START) -> list[str]:
    """Indented lines, each once, without the comments behind them."""
    lines = re.findall(r"^    (\S.*)$", re.sub(r"```.*?```", "", text, flags=re.S), re.MULTILINE)
    return list(dict.fromkeys(re.sub(r"\s{2,}#.*", "", line).strip() for line in lines))


def is_run(line: str) -> bool:
    return not line.startswith(tuple(NOT_RUN))


def test_every_command_of_readme_and_quick_start_is_run_or_listed_with_a_reason() -> None:
    """What is not ours to run is seen by its first word; every entry of the lists is used."""
    programs = {re.split(r"[ |]", line)[0] for line in commands() if is_run(line)}
    assert programs == {"nightingale", "echo", "my-language-model", "curl"}
    for part in (*NOT_RUN, *CHANGED):
        assert any(part in line for line in commands()), part
    assert set(re.findall(r"^```(.+)$", README + QUICK_START, re.MULTILINE)) == {"python"}
    assert commands("x\n\n    docker pull a  # why\n\ny\n") == ["docker pull a"]


def test_every_script_and_test_that_readme_names_exists() -> None:
    for words in re.findall(r"`(scripts/[^`]+)`", README):
        for word in words.split():
            assert word.startswith("-") or (ROOT / word).exists(), words
    for target in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (ROOT / target).exists(), target


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the commands take: a recording, a book, a model, players, a writer."""
    from tests.tiny_release import make_release

    folder = tmp_path_factory.mktemp("desk")
    samples, rate = soundfile.read(RECORDING)
    soundfile.write(folder / "recording.wav", samples, rate)
    (folder / "book.txt").write_text("Chapter 1\n\nIt was late.\n")
    make_release(folder / "multilingual", "multilingual-hi")
    tools = folder / "bin"
    tools.mkdir()
    (tools / "nightingale").symlink_to(Path(sys.executable).with_name("nightingale"))
    programs = dict.fromkeys(("aplay", "ffplay"), "cat > /dev/null")
    for name, line in (programs | {"my-language-model": "printf 'It is '; echo me."}).items():
        (tools / name).write_text(f"#!/bin/sh\n{line}\n")
        (tools / name).chmod(0o755)
    return folder


def environment(desk: Path) -> dict[str, str]:
    home = str(desk / "home")
    return {
        "PATH": f"{desk / 'bin'}:/usr/bin:/bin",
        "NIGHTINGALE_HOME": home,
        "HOME": home,
        "OMP_NUM_THREADS": "1",  # other tests have the other processors
    }


@contextmanager
def serving(desk: Path, variables: dict[str, str]) -> Iterator[str]:
    """`nightingale serve` on ports that are free; its address."""
    port = free_port()
    ports = {
        "NIGHTINGALE_SERVE_PORT": f"{port}",
        "NIGHTINGALE_SERVE_WYOMING_PORT": f"{free_port()}",
    }
    with (desk / "serve.log").open("w") as log:
        process = subprocess.Popen(
            SERVE.split(), cwd=desk, env=variables | ports, stdout=log, stderr=log
        )
    try:
        deadline = time.monotonic() + 600
        while time.monotonic() < deadline:
            assert process.poll() is None, (desk / "serve.log").read_text()
            try:
                if httpx.get(f"http://localhost:{port}/health/ready").status_code == 200:
                    break
            except httpx.TransportError:
                pass
            time.sleep(0.2)
        yield f"localhost:{port}"
    finally:
        process.terminate()
        process.wait(60)


def run_all(desk: Path, **more: str) -> None:
    variables = environment(desk) | more
    with serving(desk, variables) as address:
        for shown in commands():
            if not is_run(shown) or shown == SERVE:
                continue
            line = shown.replace("localhost:8004", address)
            for part, instead in CHANGED.items():
                line = line.replace(part, instead)
            done = subprocess.run(
                ["bash", "-o", "pipefail", "-c", line],
                cwd=desk, env=variables, capture_output=True, text=True, check=False,
            )  # fmt: skip
            assert done.returncode == 0, f"{line}\n{done.stderr}"
            if more and "nightingale say" in line:
                assert "on pretend (pretend is the fastest device" in done.stderr, done.stderr
    for name in ("hello.wav", "hello.mp3", "anna.mp3", "book.mp3"):
        assert soundfile.info(desk / name).duration > 0.3, name


@pytest.mark.slow
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


@pytest.mark.slow
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
