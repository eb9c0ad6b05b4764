"""Progress: silent while work is short, a line now and then in a pipe, a bar on a terminal."""

from __future__ import annotations

import io
import re
import time
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from typer.testing import CliRunner

from nightingale.cli import app, progress
from nightingale.cli.live import Meter
from nightingale.cli.request import SpeechProgress
from nightingale.core import AudioChunk
from nightingale.prebuffer import Prebuffered


def piped() -> tuple[Console, io.StringIO]:
    shown = io.StringIO()
    return Console(file=shown, markup=False, highlight=False, soft_wrap=True), shown


def test_lines_in_a_pipe_are_sparse() -> None:
    console, shown = piped()
    now = [100.0]
    lines = progress.Sparse(console, clock=lambda: now[0])
    for _ in range(350):  # 35 s
        lines.report(lambda s: f"after {s:.0f} s")
        now[0] += 0.1
    assert shown.getvalue().splitlines() == ["after 10 s", "after 20 s", "after 30 s"]


@pytest.mark.parametrize(
    ("share", "seconds", "elapsed_s", "line"),
    [
        (0.25, 41.3, 60.0, "25% spoken, 41.3 s of audio, about 3 min left"),
        (0.8, 41.3, 60.0, "80% spoken, 41.3 s of audio, about 15 s left"),
        (None, 41.3, 60.0, "41.3 s of audio after 60 s"),
        (0.0, 0.3, 10.0, "0.3 s of audio after 10 s"),
    ],
)
def test_a_line_has_share_audio_and_time_left(
    share: float | None, seconds: float, elapsed_s: float, line: str
) -> None:
    assert progress.spoken_line(share, seconds, elapsed_s) == line


def test_a_terminal_gets_a_bar() -> None:
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, width=100)
    with progress.speaking(console) as report:
        report(0.42, 12.5)
        time.sleep(0.2)  # it is drawn ten times a second
    assert "42%" in shown.getvalue()
    assert "12.5 s of audio" in shown.getvalue()
    silent, nothing = piped()
    with progress.speaking(silent, quiet=True) as report:
        report(0.42, 12.5)
    assert nothing.getvalue() == ""


def test_work_without_steps_shows_that_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "EVERY_S", 0.01)
    console, shown = piped()
    with progress.working(console, "packing"):
        time.sleep(0.1)
    assert "packing: 0 s so far\n" in shown.getvalue()
    console, shown = piped()
    with progress.working(console, "packing", quiet=True):
        time.sleep(0.05)
    assert shown.getvalue() == ""


def test_steps_are_counted_in_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "EVERY_S", 0.0)
    console, shown = piped()
    with progress.counting(console, "measuring", 5) as count:
        count(2, "trials")
    assert shown.getvalue() == "trials: 2 of 5\n"


def test_the_share_never_says_all_before_the_end() -> None:
    shares: list[float | None] = []
    report = SpeechProgress("A short text.", lambda share, _seconds: shares.append(share))
    for n_tokens in (1, 10, 1000):
        report(n_tokens)
    assert all(share is not None and 0 < share < 1 for share in shares)
    assert shares == sorted(shares, key=lambda share: share or 0)
    unknown: list[float | None] = []
    SpeechProgress(iter("abc"), lambda share, _seconds: unknown.append(share))(5)
    assert unknown == [None]


def test_silence_is_not_the_first_sound_of_a_stream() -> None:
    silence, tone = np.zeros(12_000, np.float32), np.full(2_400, 0.5, np.float32)
    meter = Meter(Prebuffered([AudioChunk(silence), AudioChunk(tone)], 0.0, rtf=0.1))
    assert "buffering" in meter.line()
    chunks = meter.samples()
    next(chunks)
    assert "nothing audible yet" in meter.line()
    next(chunks)
    found = re.search(r"0.6 s of audio, first audible sample after (\d+\.\d+) s", meter.summary())
    assert found, meter.summary()
    assert 0.5 <= float(found[1]) < 0.7  # the silence has to be heard first


@pytest.mark.parametrize(
    ("arguments", "place"),
    [
        (["quantize", "fledgling"], "nightingale.loader.pack_t3"),
        (["bench"], "nightingale.loader.load_components"),
        (["verify"], "nightingale.pipeline.Nightingale.load"),
        (["pull", "nano"], "nightingale.weights.fetch.pull"),
        (["doctor"], "nightingale.backends.torch.backend.choose"),
    ],
)
def test_ctrl_c_is_one_line_and_exit_code_130(
    arguments: list[str], place: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def interrupted(*_arguments: object, **_options: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(place, interrupted)
    result = CliRunner().invoke(app, arguments, env={"NIGHTINGALE_HOME": str(tmp_path)})
    assert result.exit_code == 130
    assert result.stderr.startswith("Interrupted")
    assert result.stderr.count("\n") == 1
    assert result.stdout == ""
