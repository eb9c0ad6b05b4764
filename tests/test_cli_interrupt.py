"""`say -o FILE` that is interrupted: what was spoken is kept, and the resumed file is the same."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from typer.testing import CliRunner, Result

from benchmarks.interruptions import Ending, after, interrupt
from nightingale.cli import app
from nightingale.cli.journal import Journal
from tests.tiny_release import Releases

TEXT = "The billing issue is resolved. " * 25  # three parts
SENTENCES = (
    "The lamp was lit again. Anna saw it from her window. She walked down to the sea. "
    "The wind was cold that night. Somebody was singing there."
)

Run = Callable[..., Result]


@pytest.fixture(scope="module")
def release(releases: Releases) -> Path:
    return releases("english")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, release: Path) -> Run:
    home = str(tmp_path_factory.mktemp("home"))

    def call(*arguments: str | Path, text: str = TEXT) -> Result:
        common = ("say", text, "--model", release, "--max-tokens", "6", "--plan", "reference")
        every = [str(argument) for argument in (*common, *arguments)]
        return CliRunner().invoke(app, every, env={"NIGHTINGALE_HOME": home})

    return call


@pytest.fixture(scope="module")
def whole(run: Run, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """What an undisturbed run writes."""
    file = tmp_path_factory.mktemp("whole") / "out.mp3"
    assert run("-o", file).exit_code == 0
    return file.read_bytes()


@pytest.fixture
def stop_after(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Ctrl-C right before a chunk is kept."""
    append, n_left = Journal.append, [10**9]

    def stopping(journal: Journal, samples: NDArray[np.float32]) -> None:
        if n_left[0] == 0:
            raise KeyboardInterrupt
        n_left[0] -= 1
        append(journal, samples)

    monkeypatch.setattr(Journal, "append", stopping)
    return lambda n_chunks: n_left.__setitem__(0, n_chunks)


@pytest.mark.slow
def test_an_interrupted_run_is_resumed_to_the_same_bytes(
    run: Run, tmp_path: Path, stop_after: Callable[[int], None], whole: bytes
) -> None:
    file, partial = tmp_path / "out.mp3", tmp_path / "out.mp3.partial"
    stop_after(2)
    stopped = run("-o", file)
    assert stopped.exit_code == 130
    kept = [line for line in stopped.stderr.splitlines() if "kept" in line]
    assert len(kept) == 1
    assert f"s in {partial}; resume with the same command and --resume" in kept[0]
    assert "Traceback" not in stopped.stderr
    assert not file.exists()

    stop_after(10**9)
    again = run("-o", file)
    assert again.exit_code == 1  # what is kept is not lost by forgetting the option
    assert "add --resume to continue it" in again.stderr
    other = run("-o", file, "--seed", "5", "--resume")
    assert other.exit_code == 1
    assert "seed 0 (now 5)" in other.stderr
    assert "another text" in run("-o", file, "--resume", text=f"{TEXT} More.").stderr
    assert partial.exists()

    resumed = run("-o", file, "--resume")
    assert resumed.exit_code == 0, resumed.stderr
    assert "of it from the interrupted run" in resumed.stderr
    assert file.read_bytes() == whole
    assert not partial.exists()


@pytest.mark.slow
def test_a_run_that_ended_while_encoding_needs_no_model(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: bytes
) -> None:
    file = tmp_path / "out.mp3"

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("nightingale.cli.file_job.write", interrupted)
        assert run("-o", file).exit_code == 130
    (tmp_path / ".out.mp3.0123abcd").write_bytes(b"a draft of a killed run")
    with monkeypatch.context() as patch:
        patch.setattr("nightingale.cli.request.Request.load", interrupted)
        assert run("-o", file, "--resume").exit_code == 0
    assert file.read_bytes() == whole
    assert not (tmp_path / ".out.mp3.0123abcd").exists()


@pytest.mark.slow
def test_an_interruption_before_the_first_chunk_leaves_nothing(
    run: Run, tmp_path: Path, stop_after: Callable[[int], None]
) -> None:
    stop_after(0)
    stopped = run("-o", tmp_path / "out.wav")
    assert stopped.exit_code == 130
    assert "nothing was spoken yet" in stopped.stderr
    assert not list(tmp_path.glob("out*"))


@pytest.mark.slow
def test_resume_with_nothing_kept_starts_at_the_beginning(
    run: Run, tmp_path: Path, whole: bytes
) -> None:
    file = tmp_path / "out.mp3"
    assert run("-o", file, "--resume").exit_code == 0
    assert file.read_bytes() == whole


def test_ctrl_c_without_a_file_is_one_line(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("nightingale.cli.live.deliver", interrupted)
    result = run("-o", "-")
    assert (result.exit_code, result.stdout_bytes) == (130, b"")
    assert result.stderr.splitlines()[1:] == ["Interrupted."]  # behind the plan


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "more"), [("a.wav", ["--plan", "reference"]), ("b.flac", ["--stream"])]
)
def test_real_processes_are_killed_and_interrupted(
    tmp_path: Path, name: str, more: list[str]
) -> None:
    """kill -9 in the first run, Ctrl-C while the second one loads, SIGTERM in the third."""
    environ = {
        "NIGHTINGALE_HOME": str(tmp_path / "home"),
        "PYTHONPATH": os.pathsep.join(sys.path),
        "OMP_NUM_THREADS": "1",
    }
    python = ["env", *(f"{name}={value}" for name, value in environ.items()), sys.executable]

    def say(file: Path) -> list[str]:
        short = ["--decoder", "meanflow", "--max-tokens", "30", "--quiet"]
        return ["say", SENTENCES, "-o", str(file), *more, *short]

    def command(file: Path) -> list[str]:
        return [*python, "-m", "nightingale", *say(file)]

    whole, file = tmp_path / f"whole-{name}", tmp_path / name
    partial = tmp_path / f"{name}.partial"
    undisturbed = CliRunner().invoke(app, say(whole), env=environ)
    assert undisturbed.exit_code == 0, undisturbed.output

    def has(n_bytes: int) -> Callable[[], bool]:
        return lambda: partial.exists() and partial.stat().st_size > n_bytes

    def check(ending: Ending, number: int) -> None:
        assert ending.complaint(number) is None
        assert ending.returncode != 0, "it had finished before"
        assert not file.exists()

    check(interrupt(command(file), signal.SIGKILL, has(60_000)), signal.SIGKILL)
    kept = partial.read_bytes()
    resume = [*command(file), "--resume"]
    check(interrupt(resume, signal.SIGINT, after(0.7)), signal.SIGINT)
    assert partial.read_bytes() == kept
    ending = interrupt(resume, signal.SIGTERM, has(len(kept)))
    check(ending, signal.SIGTERM)
    assert f"s in {partial}; resume with the same command" in ending.stderr
    subprocess.run(resume, check=True, capture_output=True)
    assert file.read_bytes() == whole.read_bytes()
    assert not partial.exists()
