"""The backend mlx from outside: when it is available, what a plan becomes, what is heard."""

from __future__ import annotations

from collections.abc import Callable
from importlib import util
from pathlib import Path

import numpy as np
import pytest

from nightingale import Nightingale
from nightingale.backends.mlx import backend
from nightingale.core import PLANS
from nightingale.errors import OptionError
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
