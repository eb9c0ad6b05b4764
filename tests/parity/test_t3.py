"""T3 against the upstream package on the same random weights, saved under upstream's names."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from nightingale.backends.torch.t3.decode import Noise
from nightingale.backends.torch.t3.model import CONFIGS, DEAD_TENSORS, T3, T3Config, Utterance
from nightingale.backends.torch.t3.sampling import guide
from nightingale.core import END_OF_SPEECH, Family, Options
from nightingale.families import FAMILIES
from nightingale.weights.load import load_into
from tests.parity.conftest import RunUpstream
from tests.tiny import TINY, tiny_text, tiny_voice

pytestmark = pytest.mark.parity

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


def cases(config: T3Config, n_cases: int, n_steps: int) -> list[Case]:
    """Texts, voices, seeds and options, all of them different from case to case."""
    ways = itertools.cycle(itertools.product(WAYS[config.is_llama], (0.8, 0.0001)))
    made = []
    for number, (way, temperature) in zip(range(n_cases), ways, strict=False):
        options = dataclasses.replace(
            FAMILIES[config.family].options, temperature=temperature, max_tokens=n_steps, **way
        )
        text = tiny_text(number, n_tokens=3 + 7 * (number % 17), family=config.family)
        made.append(Case(text, voice=number % 5, seed=100 + number, options=options))
    return made


def upstream_noise(seed: int, n_speech: int) -> Noise:
    """The draws that upstream makes after torch.manual_seed: a row of the one generator a step."""
    generator = torch.Generator().manual_seed(seed)
    return lambda _index: torch.empty(n_speech).exponential_(generator=generator)


class Comparison:
    """One checkpoint that upstream made and spoke with, and our model of the same weights."""

    def __init__(
        self,
        config: T3Config,
        run: RunUpstream,
        work: Path,
        *,
        n_cases: int = 52,
        n_steps: int = 200,
        sharpness: float = 2.0,
    ) -> None:
        self.config, self.n_steps = config, n_steps
        self.cases = cases(config, n_cases, n_steps)
        self.voices = [tiny_voice(n, (config.max_prompt, 150, 97, 40, 1)[n]) for n in range(5)]
        for number, voice in enumerate(self.voices):
            arrays = {"speaker": voice.speaker, "tokens": voice.tokens}
            tensors = {name: torch.from_numpy(array) for name, array in arrays.items()}
            save_file(tensors, work / f"voice{number}")
        checkpoint = work / "t3.safetensors"
        job = {
            "threads": torch.get_num_threads(),
            "sizes": dataclasses.asdict(config),
            "seed": 7,
            "sharpness": sharpness,
            "checkpoint": str(checkpoint),
            "logits": str(work / "logits.safetensors"),
            "cases": [
                {
                    "text": case.text,
                    "voice": str(work / f"voice{case.voice}"),
                    "seed": case.seed,
                    "n_tokens": n_steps,
                    "options": dataclasses.asdict(case.options),
                }
                for case in self.cases
            ],
        }
        self.their_tokens: list[list[int]] = run("upstream_t3.py", job)["tokens"]
        self.their_logits = load_file(work / "logits.safetensors")
        with torch.device("meta"):
            self.model = T3(config)
        load_into(self.model, checkpoint, dead=DEAD_TENSORS)

    def logits(self) -> None:
        worst = 0.0
        for number, case in enumerate(self.cases):
            prefix = self.model.prefix(self.voices[case.voice], case.options.exaggeration)
            ours = Utterance(self.model, case.text, prefix, case.options, None).first()
            rows = self.their_logits[str(number)]
            theirs = guide(rows, case.options.cfg_weight) if self.config.is_llama else rows[0]
            worst = max(worst, float((ours - theirs).abs().max()))
        print(f"{self.config.family}: logits of {len(self.cases)} prompts within {worst:.1e}")
        assert worst < MAX_LOGIT_ERROR

    def tokens(self) -> None:
        n_tokens, wrong = 0, []
        for number, case in enumerate(self.cases):
            prefix = self.model.prefix(self.voices[case.voice], case.options.exaggeration)
            noise = upstream_noise(case.seed, self.config.n_speech)
            ours = list(self.model.decode(case.text, prefix, case.options, noise=noise))
            if not self.config.is_llama and ours[-1] == END_OF_SPEECH:
                ours.pop()  # upstream drops the end there
            n_tokens += len(ours)
            if ours != self.their_tokens[number]:
                pairs = enumerate(zip(ours, self.their_tokens[number], strict=False))
                at = next((i for i, (a, b) in pairs if a != b), "the end")
                wrong.append(f"case {number} from {at} on, {case.options}")
        assert not wrong, f"{len(wrong)} of {len(self.cases)} cases differ: {wrong}"
        # Random weights may end early now and then.
        assert n_tokens > 0.9 * self.n_steps * len(self.cases)
        who = f"{self.config.family}: {len(self.cases)} utterances"
        print(f"{who}, {n_tokens} tokens, all the same")


@pytest.mark.parametrize("family", ["english", "multilingual", "turbo", "nano"])
@pytest.mark.parametrize(
    ("n_cases", "n_steps"), [(12, 100), pytest.param(52, 200, marks=pytest.mark.fullsize)]
)
def test_scaled_down_models_say_the_same_tokens(
    family: Family, n_cases: int, n_steps: int, run_upstream: RunUpstream, tmp_path: Path
) -> None:
    """Each way to speak once, at both temperatures; the long run has each four times."""
    config = TINY[family]
    Comparison(config, run_upstream, tmp_path, n_cases=n_cases, n_steps=n_steps).tokens()


@pytest.mark.parametrize("family", ["english", "multilingual", "turbo", "nano"])
def test_scaled_down_models_give_the_same_logits(
    family: Family, run_upstream: RunUpstream, tmp_path: Path
) -> None:
    Comparison(TINY[family], run_upstream, tmp_path, n_cases=24, n_steps=2, sharpness=1.0).logits()


@pytest.fixture
def both_cores() -> Iterator[None]:
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(1)


@pytest.mark.fullsize
@pytest.mark.timeout(4 * 3600)
@pytest.mark.usefixtures("both_cores")
def test_the_full_size_multilingual_model_says_the_same_tokens(
    run_upstream: RunUpstream, tmp_path: Path
) -> None:
    config = CONFIGS["multilingual"]
    Comparison(config, run_upstream, tmp_path).tokens()


@pytest.mark.fullsize
@pytest.mark.timeout(3600)
@pytest.mark.usefixtures("both_cores")
def test_the_full_size_multilingual_model_gives_the_same_logits(
    run_upstream: RunUpstream, tmp_path: Path
) -> None:
    config = CONFIGS["multilingual"]
    Comparison(config, run_upstream, tmp_path, n_steps=2, sharpness=1.0).logits()
