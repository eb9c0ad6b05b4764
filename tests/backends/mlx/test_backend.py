"""The backend mlx from outside: when it is available, what a plan becomes, what is heard."""

from __future__ import annotations

import functools
import os
import platform
import subprocess
import sys
from collections.abc import Callable
from importlib import util
from multiprocessing.pool import ThreadPool
from pathlib import Path

import numpy as np
import pytest

from nightingale import Nightingale, backends, device_check
from nightingale.backends.mlx import backend
from nightingale.core import PLANS
from nightingale.errors import OptionError
from nightingale.loader import LoadOptions
from nightingale.measure.bench import bench
from nightingale.measure.random_model import random_components
from nightingale.measure.stages import torch_stages
from tests.server.running import serving
from tests.tiny_release import Releases

needs_mlx = pytest.mark.skipif(util.find_spec("mlx") is None, reason="MLX is not installed")


@pytest.mark.parametrize(
    ("is_mac", "reason"),
    [(True, "MLX is not installed: pip install 'nightingale-tts[mlx]'"), (False, "for Macs")],
)
def test_without_mlx_it_says_what_to_do(
    is_mac: bool, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(util, "find_spec", lambda _: None)
    monkeypatch.setattr(backend, "is_apple_silicon", lambda: is_mac)
    available = backend.BACKEND.availability()
    assert not available.is_available
    assert reason in available.reason


@needs_mlx
def test_resolved_plan_has_what_mlx_gives() -> None:
    resolved = backend.BACKEND.resolve(PLANS["auto"], "cpu")
    plan = resolved.plan
    assert (plan.t3, plan.flow, plan.vocoder, plan.tf32) == ("int8", "fp32", "fp32", False)
    assert backend.BACKEND.resolve(PLANS["reference"], "cpu").plan.t3 == "fp32"
    assert "fp32 by MLX" in str(resolved)


@needs_mlx
@pytest.mark.parametrize("name", ["cuda", "mps", "gpu:1"])
def test_a_device_that_mlx_does_not_have_is_refused(name: str) -> None:
    with pytest.raises(OptionError, match=r"not available to MLX here; it has: .*cpu"):
        backend.BACKEND.resolve(PLANS["reference"], name)


@needs_mlx
@pytest.mark.parametrize(("fault", "name"), [("", "mlx"), ("token 3 is wrong", "torch")])
def test_auto_takes_mlx_where_its_self_test_passes(
    fault: str, name: str, releases: Releases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on Apple Silicon."""
    monkeypatch.setattr(backends, "by_preference", lambda: ("mlx", "torch"))
    monkeypatch.setattr(device_check, "run", lambda *_: fault)
    components = Nightingale.load(releases("english"), home=tmp_path).components
    assert components.backend == name
    assert ("not mlx: token 3 is wrong" in str(components.resolved)) == bool(fault)
    by_device = Nightingale.load(releases("english"), home=tmp_path, device="cpu").components
    assert by_device.backend == "torch"


def test_auto_is_torch_where_mlx_is_not_installed(
    releases: Releases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backends, "by_preference", lambda: ("mlx", "torch"))
    monkeypatch.setattr(util, "find_spec", lambda _: None)
    components = Nightingale.load(releases("english"), home=tmp_path).components
    assert components.backend == "torch"
    assert "not mlx: it is for Macs" in str(components.resolved)


def test_apple_silicon_is_a_mac_with_arm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    for machine, wanted in (("arm64", ("mlx", "torch")), ("x86_64", ("torch",))):
        monkeypatch.setattr(platform, "machine", lambda found=machine: found)
        assert backends.by_preference() == wanted


@needs_mlx
@pytest.mark.slow
def test_self_test_passes_on_mlx_and_finds_a_fault(tmp_path: Path) -> None:
    assert device_check.run("mlx", "cpu") == ""
    broken = tmp_path / "sitecustomize.py"
    broken.write_text(
        "from nightingale.backends.mlx import transformer\n"
        "transformer.rotate = lambda x, cos, sin: x\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "nightingale.measure.self_test", "mlx", "cpu"],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "speech token" in done.stdout


@needs_mlx
@pytest.mark.slow
@pytest.mark.parametrize("name", ["english", "nano"])
def test_say_is_the_concatenation_of_stream(name: str, releases: Releases, tmp_path: Path) -> None:
    """On the window grid, with int8, from another thread than the one that loaded."""
    load: Callable[..., Nightingale] = Nightingale.load
    tts = load(releases(name), home=tmp_path, backend="mlx", plan="live")
    said = tts.say("Hello there, it is late.", seed=3, max_tokens=40)
    chunks = list(tts.stream("Hello there, it is late.", seed=3, max_tokens=40))
    assert len(chunks) > 1
    assert np.array_equal(said.samples, np.concatenate([chunk.samples for chunk in chunks]))
    assert tts.components.plan.t3 == "int8"


@needs_mlx
@pytest.mark.slow
def test_bench_measures_mlx(releases: Releases, tmp_path: Path) -> None:
    tts = Nightingale.load(releases("english"), home=tmp_path, backend="mlx", plan="live")
    result = bench(tts, n_trials=1, seconds=0.4)
    (trial,) = result.trials
    stages = trial.timings
    assert min(stages.tokens_ms, stages.mel_ms, stages.samples_ms) > 1  # each waits for its work
    assert stages.total_ms <= trial.wall_ms
    assert result.limits_ms["t3"] > 0


@needs_mlx
@pytest.mark.slow
def test_random_weights_are_computed_by_mlx() -> None:
    wanted = LoadOptions(decoder="meanflow", plan=PLANS["live"], backend="mlx")
    components = random_components("fledgling", wanted)
    assert (components.backend, components.plan.t3) == ("mlx", "int8")
    assert 4e6 < torch_stages(components).t3.step_bytes < 5e6  # in 32 bits, 16 MB


@needs_mlx
@pytest.mark.slow
def test_server_speaks_with_mlx(releases: Releases, tmp_path: Path) -> None:
    """Its worker loads in one thread and computes in another; two requests at once."""
    flags = ("--backend", "mlx", "--plan", "live", "--no-watermark", "--max-factor", "0")
    with serving(releases("english"), tmp_path, {}, *flags) as server, ThreadPool(2) as pool:
        speak = functools.partial(server.speak, max_tokens=40)
        first, second = pool.map(speak, ["Hello there.", "Hello there."])
    assert len(first) > 10_000
    assert first == second
