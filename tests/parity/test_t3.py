"""T3 against the upstream package on the same random weights, saved under upstream's names."""

from __future__ import annotations

import dataclasses
import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from nightingale.core import Family, Options
from nightingale.t3.decode import Noise
from nightingale.t3.model import CONFIGS, DEAD_TENSORS, T3, T3Config, Utterance
from nightingale.t3.sampling import guide
from nightingale.weights.load import load_into
from tests.parity.conftest import RunUpstream
from tests.tiny import TINY, tiny_text, tiny_voice

pytestmark = pytest.mark.parity

N_STEPS = 200
N_CASES = 52
MAX_LOGIT_ERROR = 1e-4

# How to speak, each at a temperature that samples and at one that all but takes the best token.
WAYS: dict[bool, list[dict[str, Any]]] = {
    True: [
        {},
        {"cfg_weight": 0.0},
        {"cfg_weight": 1.0, "exaggeration": 1.3},
        {"min_p": 0.0, "top_p": 0.8},
        {"repetition_penalty": 2.0, "min_p": 0.02},
        {"top_p": 0.95, "exaggeration": 0.25},
    ],
    False: [
        {},
        {"top_k": 50},
        {"top_p": 1.0},
        {"top_k": 0, "top_p": 0.6},
        {"repetition_penalty": 2.0},
        {"repetition_penalty": 1.0},
    ],
}


@dataclasses.dataclass
class Case:
    text: list[int]
    voice: int
    seed: int
    options: Options


def cases(config: T3Config, n_cases: int) -> list[Case]:
    """Texts, voices, seeds and options, all of them different from case to case."""
    ways = itertools.cycle(itertools.product(WAYS[config.is_llama], (0.8, 0.0001)))
    made = []
    for number, (way, temperature) in zip(range(n_cases), ways, strict=False):
        options = dataclasses.replace(
            Options.of(config.family), temperature=temperature, max_tokens=N_STEPS, **way
        )
        text = tiny_text(number, n_tokens=3 + 7 * (number % 17), family=config.family)
        made.append(Case(text, voice=number % 5, seed=100 + number, options=options))
    return made


def upstream_noise(seed: int, n_speech: int) -> Noise:
    """The draws that upstream makes after torch.manual_seed: a row of the one generator a step."""
    generator = torch.Generator().manual_seed(seed)
    return lambda _index: torch.empty(n_speech).exponential_(generator=generator)


def compare(config: T3Config, n_cases: int, run_upstream: RunUpstream, work: Path) -> None:
    todo = cases(config, n_cases)
    voices = [tiny_voice(n, (config.max_prompt, 150, 97, 40, 1)[n]) for n in range(5)]
    for number, voice in enumerate(voices):
        save_file({"speaker": voice.speaker, "tokens": voice.tokens}, work / f"voice{number}")
    job: dict[str, Any] = {
        "sizes": dataclasses.asdict(config),
        "seed": 7,
        "checkpoint": str(work / "t3.safetensors"),
        "logits": str(work / "logits.safetensors"),
        "cases": [
            {
                "text": case.text,
                "voice": str(work / f"voice{case.voice}"),
                "seed": case.seed,
                "n_tokens": N_STEPS,
                "options": dataclasses.asdict(case.options),
            }
            for case in todo
        ],
    }
    answer = run_upstream("upstream_t3.py", job)

    with torch.device("meta"):
        model = T3(config)
    load_into(model, work / "t3.safetensors", dead=DEAD_TENSORS)
    logits = load_file(work / "logits.safetensors")
    worst, n_tokens, wrong = 0.0, 0, []
    for number, case in enumerate(todo):
        prefix = model.prefix(voices[case.voice], case.options.exaggeration)
        ours = Utterance(model, case.text, prefix, case.options, None).first()
        theirs = logits[str(number)]
        both = guide(theirs, case.options.cfg_weight) if config.is_llama else theirs[0]
        worst = max(worst, float((ours - both).abs().max()))
        noise = upstream_noise(case.seed, config.n_speech)
        tokens = list(model.decode(case.text, prefix, case.options, noise=noise))
        expected = answer["tokens"][number]
        if not config.is_llama and tokens[-1] == 6562:
            tokens.pop()  # upstream drops the end there
        n_tokens += len(tokens)
        if tokens != expected:
            at = next(i for i, (a, b) in enumerate(zip(tokens, expected, strict=False)) if a != b)
            wrong.append(f"case {number} from token {at} on, {case.options}")
    print(f"{config.family}: {n_cases} cases, {n_tokens} tokens, logits within {worst:.1e}")
    assert not wrong, f"{len(wrong)} of {n_cases} cases differ: {wrong}"
    assert worst < MAX_LOGIT_ERROR
    assert n_tokens > 0.9 * N_STEPS * n_cases  # random weights may end early now and then


@pytest.mark.parametrize("family", ["english", "multilingual", "turbo", "nano"])
def test_scaled_down_models_say_the_same_tokens(
    family: Family, run_upstream: RunUpstream, tmp_path: Path
) -> None:
    compare(TINY[family], N_CASES, run_upstream, tmp_path)


@pytest.mark.fullsize
@pytest.mark.timeout(4 * 3600)
def test_the_full_size_multilingual_model_says_the_same_tokens(
    run_upstream: RunUpstream, tmp_path: Path
) -> None:
    torch.set_num_threads(2)
    try:
        compare(CONFIGS["multilingual"], N_CASES, run_upstream, tmp_path)
    finally:
        torch.set_num_threads(1)
