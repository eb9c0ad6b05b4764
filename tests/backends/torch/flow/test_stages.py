"""The comparison with another flow names the stage where the two part."""

from __future__ import annotations

import math

import pytest

from nightingale.backends.torch.flow.model import Decoder, Flow, frame_noise
from tests.backends.torch.flow.stages import Trace, errors, first_deviation, table, trace, worst
from tests.backends.torch.flow.tiny import tiny_flow, tiny_prompt, tiny_tokens

BAR = 1e-4


def said_by(flow: Flow) -> Trace:
    return trace(flow, tiny_tokens(), tiny_prompt(), frame_noise(0, 24, 18, 80))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("decoder", "faulty", "stage"),
    [
        ("meanflow", "input_embedding.weight", "encoder"),
        ("meanflow", "encoder.up_encoders.1.norm_ff.bias", "encoder"),
        ("meanflow", "spk_embed_affine_layer.bias", "speaker"),
        ("standard", "decoder.estimator.mid_blocks.2.1.0.attn1.to_v.weight", "step 1"),
        ("meanflow", "decoder.estimator.final_proj.bias", "step 1"),
        ("meanflow", "decoder.estimator.time_embed_mixer.weight", "step 1"),
    ],
)
def test_a_planted_fault_is_named_by_the_stage_it_is_in(
    decoder: Decoder, faulty: str, stage: str
) -> None:
    sound, broken = tiny_flow(decoder), tiny_flow(decoder)
    expected = said_by(sound)
    assert first_deviation(errors(said_by(broken), expected), BAR) is None
    broken.get_parameter(faulty).mul_(1.5)
    assert first_deviation(errors(said_by(broken), expected), BAR) == stage


@pytest.mark.parametrize("stage", ["step 1", "step 2", "mel"])
@pytest.mark.parametrize("fault", [2 * BAR, -1.0, math.nan])
def test_a_fault_that_comes_late_is_named_late(stage: str, fault: float) -> None:
    sound = said_by(tiny_flow("meanflow"))
    broken = {name: said.clone() for name, said in sound.items()}
    broken[stage].view(-1)[3] += fault
    found = worst([errors(sound, sound), errors(broken, sound)])
    assert first_deviation(found, BAR) == stage


@pytest.mark.slow
def test_another_number_of_frames_is_a_deviation() -> None:
    sound = said_by(tiny_flow("meanflow"))
    shorter = sound | {"mel": sound["mel"][:, 1:]}
    assert first_deviation(errors(shorter, sound), BAR) == "mel"


def test_the_table_shows_every_stage_of_every_model() -> None:
    lines = table({"standard": {"encoder": 1e-6, "step 1": 2e-6}, "meanflow": {"encoder": 3e-6}})
    assert [line.split() for line in lines.splitlines()] == [
        ["stage", "standard", "meanflow"],
        ["encoder", "1.0e-06", "3.0e-06"],
        ["step", "1", "2.0e-06"],
    ]
