"""The flow against the upstream package on the same random weights and the same noise."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from nightingale.backends.torch.flow.model import CONFIGS, DEAD_TENSORS, Decoder, Flow, FlowConfig
from nightingale.core import FlowPrompt
from nightingale.weights.load import load_into
from tests.backends.torch.flow.stages import errors, first_deviation, table, trace, worst
from tests.backends.torch.flow.tiny import tiny_config, tiny_prompt, tiny_tokens
from tests.parity.conftest import RunUpstream

pytestmark = pytest.mark.parity

MAX_ERROR = 1e-4
DECODERS: list[Decoder] = ["standard", "meanflow"]
N_TOKENS = (1, 2, 7, 50, 120)
PROMPTS = ((1, False), (13, True), (25, False))  # tokens, and whether the mel has a frame more
FULL_SIZE = ((1, 157, False), (7, 99, True), (50, 157, True), (120, 250, False))


@dataclasses.dataclass
class Case:
    tokens: Tensor
    prompt: FlowPrompt
    noise: Tensor

    @classmethod
    def make(cls, n_tokens: int, n_prompt: int, odd: bool) -> Case:
        seed = 1000 * n_tokens + n_prompt
        noise = torch.randn(
            2 * (n_tokens + n_prompt), 80, generator=torch.Generator().manual_seed(seed)
        )
        return cls(tiny_tokens(seed, n_tokens), tiny_prompt(seed, n_prompt, odd=odd), noise)

    def save(self, path: Path) -> str:
        prompt = self.prompt
        save_file(
            {
                "tokens": self.tokens,
                "noise": self.noise,
                "prompt_tokens": torch.from_numpy(prompt.tokens),
                "prompt_mel": torch.from_numpy(prompt.mel),
                "xvector": torch.from_numpy(prompt.xvector),
            },
            path,
        )
        return str(path)


def compare(
    configs: dict[Decoder, FlowConfig],
    cases: list[Case],
    run_upstream: RunUpstream,
    work: Path,
    threads: int = 1,
) -> None:
    job: dict[str, Any] = {"threads": threads, "models": []}
    for decoder, config in configs.items():
        model = {
            "sizes": dataclasses.asdict(config),
            "checkpoint": str(work / f"{decoder}.safetensors"),
            "cases": [case.save(work / f"{decoder}{n}") for n, case in enumerate(cases)],
        }
        job["models"].append(model)
    run_upstream("upstream_flow.py", job)

    found: dict[str, dict[str, float]] = {}
    for decoder, config in configs.items():
        with torch.device("meta"):
            flow = Flow(config)
        load_into(flow, work / f"{decoder}.safetensors", prefix="flow.", dead=DEAD_TENSORS)
        found[decoder] = worst(
            [
                errors(
                    trace(flow, case.tokens, case.prompt, case.noise),
                    load_file(work / f"{decoder}{n}.upstream"),
                )
                for n, case in enumerate(cases)
            ]
        )
    print(f"\nlargest absolute error over {len(cases)} utterances\n{table(found)}")
    for name, column in found.items():
        stage = first_deviation(column, MAX_ERROR)
        assert stage is None, f"{name}: {stage} is the first beyond {MAX_ERROR}\n{table(found)}"


def test_scaled_down_flows_go_the_same_way_step_by_step(
    run_upstream: RunUpstream, tmp_path: Path
) -> None:
    cases = [Case.make(n, *prompt) for n in N_TOKENS for prompt in PROMPTS]
    compare({d: tiny_config(d) for d in DECODERS}, cases, run_upstream, tmp_path)


@pytest.mark.fullsize
@pytest.mark.timeout(3600)
def test_the_full_size_flows_go_the_same_way_step_by_step(
    run_upstream: RunUpstream, tmp_path: Path
) -> None:
    torch.set_num_threads(2)
    try:
        compare(CONFIGS, [Case.make(*sizes) for sizes in FULL_SIZE], run_upstream, tmp_path, 2)
    finally:
        torch.set_num_threads(1)
