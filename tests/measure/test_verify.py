"""What a plan changes is measured, and a fault planted in any stage is found in its own figure."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typer.testing import CliRunner

from nightingale.audio.clip import Audio
from nightingale.cli import app
from nightingale.loader import Components
from nightingale.measure.stages import torch_stages
from nightingale.measure.verify import Verifier, divergence, spectral_distance_db
from nightingale.pipeline import Nightingale
from tests.rebuilt import rebuilt
from tests.tiny_release import Releases

TEXTS = ("The billing issue is resolved.", "Hello.")


@pytest.fixture(scope="module")
def release(releases: Releases) -> Path:
    return releases("english")


@pytest.fixture(scope="module")
def reference(release: Path, tmp_path_factory: pytest.TempPathFactory) -> Nightingale:
    home = tmp_path_factory.mktemp("home")
    return Nightingale.load(release, home=home, device="cpu", watermark=False)


@pytest.fixture(scope="module")
def verifier(reference: Nightingale) -> Verifier:
    return Verifier(reference, TEXTS, max_tokens=12)


@pytest.mark.slow
def test_the_reference_differs_in_nothing_from_itself(
    verifier: Verifier, reference: Nightingale
) -> None:
    facts = verifier.verify(Nightingale(reference.components)).facts()
    assert facts["KL divergence of logits, nats"] == 0
    assert facts["top-1 agreement"] == 1
    assert facts["common prefix, share of tokens"] == 1
    assert facts["log-mel distance, nepers"] == 0
    assert facts["log-spectral distance, dB"] == 0
    assert facts["duration ratio"] == 1
    assert facts["word error rate"] is None


def shake(part: torch.nn.Module, name: str, by: float) -> None:
    weight = part.get_parameter(name)
    noise = torch.randn(weight.shape, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        weight.add_(by * weight.std() * noise)


def loose_words(components: Components) -> Components:
    t3 = copy.deepcopy(torch_stages(components).t3)
    shake(t3, "speech_head.weight", 0.3)
    return rebuilt(components, t3=t3)


def blurred_mel(components: Components) -> Components:
    flow = copy.deepcopy(torch_stages(components).flow)
    shake(flow, "encoder_proj.weight", 0.3)
    return rebuilt(components, flow=flow)


def rough_sound(components: Components) -> Components:
    vocoder = copy.deepcopy(torch_stages(components).vocoder)
    shake(vocoder, "conv_post.weight", 0.3)
    return rebuilt(components, vocoder=vocoder)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("plant", "figure", "least"),
    [
        (loose_words, "KL divergence of logits, nats", 0.01),
        (blurred_mel, "log-mel distance, nepers", 0.05),
        (rough_sound, "log-spectral distance, dB", 0.5),
    ],
)
def test_a_planted_fault_is_found_where_it_is(
    verifier: Verifier,
    reference: Nightingale,
    plant: Callable[[Components], Components],
    figure: str,
    least: float,
) -> None:
    facts = verifier.verify(Nightingale(plant(reference.components))).facts()
    stages = (
        "KL divergence of logits, nats",
        "log-mel distance, nepers",
        "log-spectral distance, dB",
    )
    for name in stages:
        value = facts[name]
        assert value is not None
        assert value > least if name == figure else value == 0


@pytest.mark.slow
def test_one_that_stops_early_and_one_that_says_something_else_are_found(
    verifier: Verifier, reference: Nightingale
) -> None:
    class Hasty(Nightingale):
        def say(self, text: str, *args: Any, **options: Any) -> Audio:
            return super().say(text, *args, **{**options, "max_tokens": 6})

    class Deaf(Nightingale):
        def say(self, text: str, *args: Any, **options: Any) -> Audio:
            return super().say(f"Something else, not {len(text)}.", *args, **options)

    assert verifier.verify(Hasty(reference.components)).facts()["duration ratio"] == 0.5
    deaf = verifier.verify(Deaf(reference.components)).facts()
    assert deaf["common prefix, share of tokens"] < 0.5  # type: ignore[operator]
    assert deaf["first differing token, median"] < 6  # type: ignore[operator]


def test_divergence_is_none_for_the_same_and_grows() -> None:
    logits = torch.randn(5, 20, generator=torch.Generator().manual_seed(1))
    assert divergence(logits, logits + 3) == pytest.approx(0, abs=1e-6)
    small, large = (divergence(logits, logits + by * logits.flip(-1)) for by in (0.1, 0.5))
    assert 0 < small < large


def test_spectra_a_gain_apart_are_its_decibels_apart() -> None:
    noise = np.random.default_rng(0).standard_normal(24_000).astype(np.float32)
    assert spectral_distance_db(noise, noise) == 0
    assert spectral_distance_db(noise, 0.5 * noise) == pytest.approx(6.02, abs=0.1)


def test_seeds_without_judges_are_refused_before_any_work() -> None:
    done = CliRunner().invoke(app, ["verify", "--seeds", "2"])
    assert done.exit_code == 2
    assert "add --judges FOLDER" in done.stderr


@pytest.mark.slow
def test_the_command_prints_a_column_for_each_plan(release: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(
        app,
        ["verify", "--model", str(release), "--sentences", "1", "--plan", "balanced"],
        env={"NIGHTINGALE_HOME": str(tmp_path)},
    )
    assert done.exit_code == 0, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["plans"].keys() == {"reference", "balanced"}
    assert report["plans"]["balanced"]["KL divergence of logits, nats"] > 0
    assert report["plans"]["balanced"]["weights, MB"] < report["plans"]["reference"]["weights, MB"]
    assert "real-time factor" in done.stderr
