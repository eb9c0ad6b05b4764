"""Plans: packed weights from memory or from disk give the same bytes, and say what they are."""

from __future__ import annotations

import copy
import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open
from typer.testing import CliRunner

from nightingale.backends.torch.flow.estimator import Estimator
from nightingale.backends.torch.flow.fast import FastEstimator
from nightingale.backends.torch.flow.model import Flow
from nightingale.backends.torch.load import accelerate_flow
from nightingale.backends.torch.t3.quantized import QuantizedStack
from nightingale.backends.torch.vocoder.fast import FastVocoder
from nightingale.cli import app
from nightingale.core import PLANS, Plan
from nightingale.errors import CorruptFileError, OptionError
from nightingale.loader import pack_t3
from nightingale.measure.stages import torch_stages
from nightingale.nn.device import choose
from nightingale.pipeline import Nightingale
from tests.rebuilt import n_cached_voices
from tests.tiny_release import Releases

TEXT = "The billing issue is resolved."


@pytest.fixture(scope="module", params=["english", "nano"])
def release(request: pytest.FixtureRequest, releases: Releases) -> Path:
    return releases(request.param)


def say(
    release: Path, home: Path, plan: Plan | str
) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    tts = Nightingale.load(release, home=home, device="cpu", watermark=False, plan=plan)
    return tts.say(TEXT, max_tokens=10).samples


@pytest.mark.slow
@pytest.mark.parametrize("plan", ["balanced", "fast"])
def test_packed_in_memory_or_found_on_disk_gives_the_same_bytes(
    release: Path, tmp_path: Path, plan: str
) -> None:
    fresh = say(release, tmp_path, plan)
    file = pack_t3(release, tmp_path, Plan.named(plan))
    tts = Nightingale.load(release, home=tmp_path, device="cpu", watermark=False, plan=plan)
    assert isinstance(torch_stages(tts.components).t3.tfmr, QuantizedStack)
    assert np.array_equal(tts.say(TEXT, max_tokens=10).samples, fresh)
    with safe_open(file, framework="pt") as kept:
        facts = json.loads(kept.metadata()["nightingale"])
    assert facts["t3"] == PLANS[plan].t3
    assert facts["config"]["t3"]["n_layers"] == torch_stages(tts.components).t3.config.n_layers


@pytest.mark.slow
def test_a_plan_is_heard(release: Path, tmp_path: Path) -> None:
    """With random weights packing changes what is said, so the plan was obeyed."""
    assert not np.array_equal(say(release, tmp_path, "fast"), say(release, tmp_path, "reference"))


@pytest.mark.slow
@pytest.mark.usefixtures("amx")
def test_the_flow_is_hastened_where_it_can_be(release: Path, tmp_path: Path) -> None:
    """Heads of the small one are too narrow for AMX code: it stays as it was, a wider one not."""
    tts = Nightingale.load(release, home=tmp_path, device="cpu", plan="balanced")
    stages = torch_stages(tts.components)
    assert not isinstance(stages.flow.estimator, FastEstimator)
    assert isinstance(stages.vocoder, FastVocoder)
    wide = replace(stages.flow.config.estimator, d_head=32)
    flow = Flow(replace(stages.flow.config, estimator=wide))
    for plan, wanted in (("balanced", FastEstimator), ("reference", Estimator)):
        made = accelerate_flow(copy.deepcopy(flow), choose("cpu"), PLANS[plan])
        assert type(made.estimator) is wanted


@pytest.mark.slow
def test_a_cached_prompt_serves_every_request_alike(release: Path, tmp_path: Path) -> None:
    plan = Plan("own", prompt_cache=True)
    tts = Nightingale.load(release, home=tmp_path, device="cpu", watermark=False, plan=plan)
    first, other, again = (tts.say(t, max_tokens=8).samples for t in (TEXT, "Yes.", TEXT))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)
    assert n_cached_voices(tts) == 2  # one in each half of the model
    fresh = Nightingale.load(release, home=tmp_path, device="cpu", watermark=False, plan=plan)
    assert np.array_equal(fresh.say(TEXT, max_tokens=8).samples, first)
    rendered = Nightingale.load(release, home=tmp_path, device="cpu", watermark=False)
    assert not np.array_equal(rendered.say(TEXT, max_tokens=8).samples, first)


@pytest.mark.slow
def test_threads_leave_no_trace_in_a_packed_plan(release: Path, tmp_path: Path) -> None:
    before = torch.get_num_threads()
    try:
        made = []
        for n_threads in (1, 2):
            torch.set_num_threads(n_threads)
            made.append(say(release, tmp_path, "balanced"))
    finally:
        torch.set_num_threads(before)
    assert np.array_equal(made[0], made[1])


def test_a_changed_source_is_packed_anew(releases: Releases, tmp_path: Path) -> None:
    release = shutil.copytree(releases("english"), tmp_path / "release")
    before = pack_t3(release, tmp_path, PLANS["balanced"])
    source = release / "t3_cfg.safetensors"
    source.write_bytes(source.read_bytes())
    assert pack_t3(release, tmp_path, PLANS["balanced"]) != before


@pytest.mark.slow
def test_packed_weights_that_were_changed_are_refused(releases: Releases, tmp_path: Path) -> None:
    release = releases("english")
    file = pack_t3(release, tmp_path, PLANS["balanced"])
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with pytest.raises(CorruptFileError, match="run `nightingale quantize`"):
        Nightingale.load(release, home=tmp_path, device="cpu", plan="balanced")
    pack_t3(release, tmp_path, PLANS["balanced"])
    Nightingale.load(release, home=tmp_path, device="cpu", plan="balanced")


def test_an_unknown_plan_is_refused_by_name(releases: Releases, tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="no plan 'warp'; there are reference, balanced, fast"):
        Nightingale.load(releases("english"), home=tmp_path, plan="warp")


def test_quantize_packs_and_names_its_file(releases: Releases, tmp_path: Path) -> None:
    release = releases("english")
    environ = {"NIGHTINGALE_HOME": str(tmp_path / "home")}
    done = CliRunner().invoke(app, ["quantize", str(release), "--plan", "fast"], env=environ)
    assert done.exit_code == 0, done.stderr
    (file,) = (tmp_path / "home" / "packed").glob("*.safetensors")
    assert file.name in done.stderr.replace("\n", "")
    refused = CliRunner().invoke(
        app, ["quantize", str(release), "--plan", "reference"], env=environ
    )
    assert refused.exit_code == 1
    assert "packs nothing" in refused.stderr
