"""T3's parts against the facts of the released models, and what it refuses."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from nightingale.backends.torch.t3.llama import rotary_frequencies, rotate
from nightingale.backends.torch.t3.model import CONFIGS, T3, Utterance
from nightingale.backends.torch.t3.prefix import Prefixes
from nightingale.core import Family, Options, T3Prompt
from nightingale.errors import OptionError, TextError
from nightingale.families import FAMILIES
from tests.tiny import tiny_t3, tiny_text, tiny_voice

# Live parameters: the released totals without the tensors that speaking does not need.
N_PARAMETERS: dict[Family, int] = {
    "english": 532_405_248 - 8 * 1024 - 704 * 1024,
    "multilingual": 535_989_248 - 8 * 1024 - 2454 * 1024,
    "turbo": 478_862_755 - 2 * 50276 * 1024,
    "nano": 217_471_139 - 2 * 50276 * 768,
}


@pytest.mark.parametrize("family", ["english", "multilingual", "turbo", "nano"])
def test_full_size_models_have_the_released_number_of_parameters(family: Family) -> None:
    with torch.device("meta"):
        model = T3(CONFIGS[family])
    assert sum(p.numel() for p in model.parameters()) == N_PARAMETERS[family]


def test_rotary_frequencies_are_the_scaled_ones() -> None:
    """Values read off the reference model: unscaled, on the ramp, stretched eightfold."""
    frequencies = rotary_frequencies(64)
    known = {0: 1.0, 1: 0.663601279, 14: 0.00321144611, 15: 0.00137189368, 16: 0.000524846022,
             17: 0.000178507791, 18: 7.78465546e-5, 31: 3.76732260e-7}  # fmt: skip
    for index, value in known.items():
        assert float(frequencies[index]) == pytest.approx(value, rel=1e-6)


def test_rotation_turns_pairs_like_complex_numbers() -> None:
    x = torch.randn(1, 1, 5, 8, generator=torch.Generator().manual_seed(0))
    angle = torch.rand(5, 4, generator=torch.Generator().manual_seed(1))
    cos, sin = angle.cos(), angle.sin()
    tables = torch.cat((cos, cos), dim=-1), torch.cat((-sin, sin), dim=-1)
    turned = torch.complex(x[..., :4], x[..., 4:]) * torch.polar(torch.ones(5, 4), angle)
    expected = torch.cat((turned.real, turned.imag), dim=-1)
    assert torch.allclose(rotate(x, *tables), expected, atol=1e-6)


@pytest.mark.parametrize(
    ("family", "name", "value"),
    [("turbo", "cfg_weight", 0.5), ("turbo", "min_p", 0.1), ("nano", "exaggeration", 0.5),
     ("english", "top_k", 50), ("multilingual", "top_k", 50)],
)  # fmt: skip
def test_an_option_that_the_model_does_not_have_is_refused(
    family: Family, name: str, value: float
) -> None:
    model = tiny_t3(family)
    options = dataclasses.replace(FAMILIES[family].options, **{name: value})  # type: ignore[arg-type]
    prefix = model.prefix(tiny_voice(), 0.0)
    with pytest.raises(OptionError, match=f"{family} has no {name}"):
        model.decode(tiny_text(family=family), prefix, options)


@pytest.mark.parametrize("text", [[], [255] * 2051, [255, 400, 0], [255, -1, 0]])
def test_text_that_cannot_be_read_is_refused_before_anything_is_computed(text: list[int]) -> None:
    model = tiny_t3()
    with pytest.raises(TextError):
        model.decode(text, model.prefix(tiny_voice(), 0.5), Options())


@pytest.mark.slow
def test_a_voice_made_for_another_model_is_refused() -> None:
    with pytest.raises(OptionError, match=r"151 prompt tokens.*multilingual takes up to 150"):
        tiny_t3().prefix(tiny_voice(n_tokens=151), 0.5)
    with pytest.raises(OptionError, match="192 speaker values"):
        tiny_t3().prefix(T3Prompt(np.zeros(192, np.float32), np.zeros(3, np.int64)), 0.5)


@pytest.mark.slow
def test_the_longest_text_can_be_spoken() -> None:
    model = tiny_t3()
    options = Options(max_tokens=2)
    prefix = model.prefix(tiny_voice(), 0.5)
    assert len(list(model.decode([255, *[7] * 2048, 0], prefix, options))) == 2


def test_prefixes_are_kept_by_content_and_exaggeration() -> None:
    prefixes = Prefixes(tiny_t3().prefix)
    first = prefixes.get(tiny_voice(0), 0.5)
    assert prefixes.get(tiny_voice(0), 0.5) is first
    assert prefixes.get(tiny_voice(1), 0.5) is not first
    assert prefixes.get(tiny_voice(0), 0.6) is not first
    same_speaker = T3Prompt(tiny_voice(0).speaker, tiny_voice(1).tokens)
    assert prefixes.get(same_speaker, 0.5) is not first
    assert len(prefixes) == 4


def test_prefixes_forget_the_least_used_voice_first() -> None:
    model = tiny_t3()
    size = model.prefix(tiny_voice(), 0.5).n_bytes
    prefixes = Prefixes(model.prefix, max_bytes=2 * size)
    first, second = (prefixes.get(tiny_voice(n), 0.5) for n in (0, 1))
    assert prefixes.get(tiny_voice(0), 0.5) is first
    prefixes.get(tiny_voice(2), 0.5)
    assert len(prefixes) == 2
    assert prefixes.get(tiny_voice(0), 0.5) is first
    assert prefixes.get(tiny_voice(1), 0.5) is not second


@pytest.mark.parametrize(("family", "does"), [("english", True), ("turbo", False), ("nano", False)])
def test_only_llama_keeps_penalizing_the_start_token(family: Family, does: bool) -> None:
    model = tiny_t3(family)
    prefix = model.prefix(tiny_voice(), 0.0)
    text = tiny_text(family=family)
    assert Utterance(model, text, prefix, FAMILIES[family].options, None).penalizes_start is does


@pytest.mark.parametrize("family", ["turbo", "nano"])
def test_gpt2_models_cut_to_the_best_before_they_draw(family: Family) -> None:
    """With one candidate left there is nothing to draw, whatever the seed."""
    model = tiny_t3(family)
    prefix = model.prefix(tiny_voice(), 0.0)
    said = []
    for seed in (1, 2):
        options = dataclasses.replace(FAMILIES[family].options, seed=seed, top_k=1, max_tokens=8)
        said.append(list(model.decode(tiny_text(family=family), prefix, options)))
    assert said[0] == said[1]
