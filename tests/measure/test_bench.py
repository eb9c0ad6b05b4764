"""The benchmark adds up, knows its limits, and tells better from worse."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from typer.testing import CliRunner

from nightingale.backends.torch.flow.model import CONFIGS as FLOWS
from nightingale.backends.torch.vocoder.model import VocoderConfig
from nightingale.cli import app
from nightingale.measure import bench, history, limits
from nightingale.measure.bench_report import draw
from nightingale.measure.flops import count, flow_flops, vocoder_flops
from nightingale.measure.random_model import fill
from nightingale.nn.sizes import n_bytes
from nightingale.pipeline import Nightingale
from tests.backends.torch.vocoder.small import SMALL_FILTER
from tests.rebuilt import rebuilt
from tests.tiny_release import Releases

SECONDS = 0.8  # of speech
SIDE = limits.SIDE


@pytest.fixture(scope="module", autouse=True)
def small_products() -> Iterator[None]:
    """Seconds less for each figure; `limits` itself is tested with products of its own size."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "SIDE", 512)
        yield


@pytest.fixture(scope="module")
def tts(releases: Releases, tmp_path_factory: pytest.TempPathFactory) -> Nightingale:
    return Nightingale.load(releases("english"), home=tmp_path_factory.mktemp("home"), device="cpu")


@pytest.fixture(scope="module")
def result(tts: Nightingale) -> bench.Result:
    return bench.bench(tts, n_trials=3, seconds=SECONDS)


@pytest.mark.slow
def test_the_stages_add_up_to_what_the_caller_waits(result: bench.Result) -> None:
    for trial in result.trials:
        # A stage that is not counted is more than that; beside other tests 3 % were missing.
        assert trial.timings.total_ms == pytest.approx(trial.wall_ms, rel=0.1, abs=2)
        assert trial.first_token_ms + trial.step_ms < trial.timings.tokens_ms + 2


@pytest.mark.slow
def test_a_trial_says_what_was_spoken(result: bench.Result) -> None:
    for trial in result.trials:
        assert trial.n_tokens == 20
        assert trial.seconds == pytest.approx(SECONDS)
        assert trial.rtf == pytest.approx(trial.wall_ms / 1e3 / SECONDS)
        assert trial.audible_ms >= trial.first_ms
        assert trial.first_ms <= trial.wall_ms
        assert trial.n_gaps == 0  # it all comes at once


@pytest.mark.slow
def test_every_stage_has_a_limit_that_it_does_not_beat(result: bench.Result) -> None:
    for stage in bench.STAGES:
        assert result.limits_ms[stage] > 0
        assert min(result.figures()[f"{stage} / limit"]) > 1


@pytest.mark.slow
def test_the_limit_of_the_first_sample_is_that_of_everything_unless_there_are_windows(
    tts: Nightingale, result: bench.Result
) -> None:
    assert result.limits_ms["first"] == result.limits_ms["all"]
    live = Nightingale(
        rebuilt(tts.components, plan=replace(tts.components.plan, window_sizes=(3, 5)))
    )
    found = bench.bench(live, n_trials=3, seconds=SECONDS)
    assert 0 < found.limits_ms["first"] < found.limits_ms["all"]
    assert min(found.figures()["first sample / limit"]) > 1
    assert min(found.figures()["all / limit"]) > 1


@pytest.mark.parametrize(
    ("arrivals", "n_gaps"),
    [
        ([(100, 50), (200, 140), (300, 330)], 0),  # plays from 140 on: 300 ms until 440
        ([(100, 50), (200, 140), (300, 441)], 1),
        ([(100, 50), (100, 90), (100, 291), (100, 500)], 2),
        ([(250, 50), (100, 299)], 0),
        ([(50, 50)], 0),
    ],
)
def test_a_gap_is_when_the_buffer_runs_dry(
    arrivals: list[tuple[float, float]], n_gaps: int
) -> None:
    assert bench.gaps(arrivals, 200) == n_gaps


def test_an_audible_sample_may_come_in_a_later_chunk() -> None:
    silent, loud = np.zeros(2400, np.float32), np.full(2400, 0.5, np.float32)
    assert bench.first_audible_ms([(silent, 70), (loud, 90)]) == 170
    assert bench.first_audible_ms([(silent, 70), (loud, 300)]) == 300


def test_weights_are_counted_in_the_form_they_are_kept() -> None:
    module = nn.Linear(10, 20, bias=False)
    assert n_bytes(module) == 800
    assert n_bytes(module.bfloat16(), module) == 2 * 400


@pytest.mark.slow
def test_operations_are_those_of_the_released_model() -> None:
    """As worked out by hand: 132.2 M a frame and 114.7 k a pair of frames, in each row and step."""
    per_row = 132.2e6 * 750 + 114.7e3 * 750**2
    encoder = 55.1e9
    assert flow_flops(FLOWS["standard"], 125, 250) == pytest.approx(
        20 * per_row + encoder, rel=0.01
    )
    assert flow_flops(FLOWS["meanflow"], 125, 250) == pytest.approx(2 * per_row + encoder, rel=0.01)
    assert vocoder_flops(VocoderConfig(), 250) == pytest.approx(5 * 30.6e9, rel=0.01)
    one, two = (vocoder_flops(VocoderConfig(**SMALL_FILTER), n) for n in (100, 200))
    assert two == pytest.approx(2 * one, rel=0.01)
    assert count(lambda: torch.ones(3, 5) @ torch.ones(5, 7)) == 2 * 3 * 5 * 7


def test_silence_at_the_front_is_not_yet_sound() -> None:
    samples = np.zeros(24_000, np.float32)
    assert bench.first_audible_ms([(samples, 70)]) == 1070
    samples[2400:] = 0.5
    assert bench.first_audible_ms([(samples, 70)]) == 170


@pytest.mark.slow
def test_limits_are_of_this_world(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between what a watch could do and what no machine can."""
    monkeypatch.setattr(limits, "SIDE", SIDE)
    assert 1e8 < 2**28 / (limits.stream_ms(2**28) / 1e3) < 1e13
    ratios = [limits.stream_ms(2**31) / limits.stream_ms(2**29) for _ in range(3)]
    assert 2 < statistics.median(ratios) < 8  # four times the bytes
    assert 1e8 < limits.product_flops(torch.float32, torch.device("cpu")) < 1e16


@pytest.mark.parametrize(
    ("name", "now", "verdict"),
    [
        ("t3 ms", [80, 81, 79, 80, 82], "better"),
        ("t3 ms", [120, 121, 119, 118, 122], "worse"),
        ("tokens per second", [120, 121, 119, 118, 122], "better"),
        ("t3 ms", [101, 100, 102, 101, 101], "noise"),
        ("t3 ms", [60, 150, 100, 70, 140], "noise"),
    ],
)
def test_better_worse_and_noise_are_told_apart(name: str, now: list[float], verdict: str) -> None:
    before = [100.0, 99.0, 101.0, 100.0, 98.0]
    assert history.compare(name, before, now).verdict == verdict


def test_results_are_kept_and_found_by_subject_and_machine(tmp_path: Path) -> None:
    file = tmp_path / "deep" / "results.jsonl"
    subject, machine = {"model": "a"}, {"cpu": "x"}
    assert history.last(file, subject, machine) is None
    for number in (1, 2):
        history.keep(file, subject, {"machine": machine, "number": number})
    history.keep(file, {"model": "b"}, {"machine": machine, "number": 3})
    history.keep(file, subject, {"machine": {"cpu": "y"}, "number": 4})
    found = history.last(file, subject, machine)
    assert found is not None
    assert found["number"] == 2


@pytest.mark.slow
def test_bars_are_drawn(result: bench.Result, tmp_path: Path) -> None:
    draw(result, tmp_path / "bars.png")
    assert (tmp_path / "bars.png").read_bytes().startswith(b"\x89PNG")


@pytest.fixture
def folder(releases: Releases) -> Path:
    return releases("nano")


@pytest.mark.slow
def test_the_command_ends_with_json_and_compares_with_the_last_time(
    folder: Path, tmp_path: Path
) -> None:
    def run(*more: str) -> tuple[dict[str, Any], str]:
        arguments = ["bench", "--model", str(folder), "--trials", "2", "--seconds", "0.4"]
        arguments += ["--results", str(tmp_path / "results"), *more]
        done = CliRunner().invoke(app, arguments, env={"NIGHTINGALE_HOME": str(tmp_path / "home")})
        assert done.exit_code == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1]), done.stderr

    facts, report = run("--json")
    assert report == ""
    assert facts["machine"]["n_cores"] and facts["machine"]["instructions"]
    assert facts["n_trials"] == 2
    assert facts["n_tokens"] == 10
    _, report = run()
    assert any(word in report for word in ("noise", "better", "worse"))
    assert not set("[]\x1b") & set(report), "markup or escape codes in a pipe"
    assert len((tmp_path / "results" / "results.jsonl").read_text().splitlines()) == 2


def test_random_weights_are_finite_and_the_same_every_time() -> None:
    def made() -> nn.Module:
        with torch.device("meta"):
            module = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4))
        fill(module, 3)
        return module

    first, second = made().state_dict(), made().state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert all(tensor.isfinite().all() for tensor in first.values())
