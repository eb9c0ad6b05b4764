"""Flow and vocoder with products in 8 bits: near fp32, on any number of threads the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from nightingale.backends.torch.flow.fast import FastEstimator
from nightingale.backends.torch.flow.model import Flow
from nightingale.backends.torch.load import accelerate_flow, accelerate_vocoder
from nightingale.backends.torch.vocoder.fast import FastVocoder
from nightingale.backends.torch.vocoder.model import Vocoder, VocoderConfig
from nightingale.core import CPU, Plan
from nightingale.nn import native
from nightingale.nn.device import choose
from tests.backends.torch.flow.test_fast import small_flow
from tests.backends.torch.flow.tiny import tiny_prompt, tiny_tokens
from tests.backends.torch.vocoder.small import SMALL, randomize, small_mel

pytestmark = pytest.mark.skipif(native.int8() is None, reason="no kernels in 8 bits run here")
PLAN = replace(Plan(), flow="int8", vocoder="int8")


def int8_flow() -> Flow:
    flow = accelerate_flow(small_flow("meanflow"), choose(CPU), PLAN)
    assert isinstance(flow.estimator, FastEstimator)
    return flow


def small_vocoder() -> Vocoder:
    vocoder = Vocoder(VocoderConfig(**SMALL))
    randomize(vocoder, 0)
    return vocoder.eval().requires_grad_(False)


def by_threads(make: Callable[[], Tensor]) -> list[Tensor]:
    before, made = torch.get_num_threads(), []
    try:
        for n_threads in (1, 2):
            torch.set_num_threads(n_threads)
            made.append(make())
    finally:
        torch.set_num_threads(before)
    return made


def test_int8_flow_is_near_fp32_and_independent_of_threads() -> None:
    prompt, tokens, flow = tiny_prompt(n_tokens=9), tiny_tokens(n_tokens=14), int8_flow()
    one, two = by_threads(lambda: flow.render(tokens, prompt, 3))
    exact = small_flow("meanflow").render(tokens, prompt, 3)
    assert torch.equal(one, two)
    assert 1e-4 < (one - exact).abs().mean() / exact.std() < 0.05


def test_int8_flow_windows_are_independent_of_threads() -> None:
    prompt, flow = tiny_prompt(n_tokens=9), int8_flow()

    def render() -> Tensor:
        state, made = flow.prefill(prompt), []
        for first in (0, 8):
            tokens = tiny_tokens(n_tokens=19)[first : first + 11]
            mel, state = flow.render_chunk(tokens, prompt, state, 3, n_ahead=3)
            made.append(mel)
        return torch.cat(made, dim=1)

    one, two = by_threads(render)
    assert torch.equal(one, two)
    assert one.shape[1] == 2 * 16


def test_int8_vocoder_is_near_fp32_and_independent_of_threads() -> None:
    slow, mel = small_vocoder(), small_mel(n_frames=8)
    fast = accelerate_vocoder(slow, choose(CPU), PLAN)
    assert isinstance(fast, FastVocoder)
    one, two = by_threads(lambda: fast.vocode(mel, 1))
    exact = slow.vocode(mel, 1)
    assert torch.equal(one, two)
    noise_db = 10 * torch.log10((one - exact).square().sum() / exact.square().sum())
    assert -80 < noise_db < -20
