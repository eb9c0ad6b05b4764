"""The estimator in bfloat16 is near the exact one; what a voice's recording takes is known."""

from __future__ import annotations

import copy

import pytest
import torch

from nightingale.backends.torch import decoder
from nightingale.backends.torch.decoder import N_PROMPTS, PROMPT_TOKENS, prompt_cache_bytes
from nightingale.backends.torch.flow.bf16 import Bf16Estimator
from nightingale.backends.torch.flow.model import CONFIGS, Decoder, Flow
from nightingale.nn.device import HOST
from nightingale.nn.meta_init import meta_init
from tests.backends.torch.flow.tiny import tiny_flow, tiny_prompt, tiny_tokens


def in_bf16(flow: Flow) -> Flow:
    narrow = copy.deepcopy(flow)
    narrow.decoder["estimator"] = Bf16Estimator(narrow.estimator)
    return narrow


@pytest.mark.parametrize("kind", [pytest.param("standard", marks=pytest.mark.slow), "meanflow"])
def test_bfloat16_is_near_fp32_whole_and_in_windows(kind: Decoder) -> None:
    exact, prompt, tokens = tiny_flow(kind), tiny_prompt(), tiny_tokens()
    near = in_bf16(exact)
    pairs = [
        (flow.render(tokens, prompt, 1), flow.render_chunk(tokens, prompt, flow.prefill(prompt), 1))
        for flow in (exact, near)
    ]
    (whole, (chunk, _)), (near_whole, (near_chunk, state)) = pairs
    for wanted, made in ((whole, near_whole), (chunk, near_chunk)):
        assert made.dtype is torch.float32
        apart = (made - wanted).abs().mean()
        assert 0 < apart < 0.03 * wanted.abs().mean()
    assert state.rendered[0].steps[0].keys[0].dtype is torch.bfloat16


@pytest.mark.parametrize("kind", [pytest.param("standard", marks=pytest.mark.slow), "meanflow"])
def test_the_bytes_of_a_recording_are_known_before_it_is_rendered(kind: Decoder) -> None:
    prompt = tiny_prompt(n_tokens=40)
    for flow in (tiny_flow(kind), in_bf16(tiny_flow(kind))):
        kept = flow.prefill(prompt).n_bytes
        assert flow.prompt_bytes(40) == pytest.approx(kept, rel=0.2)
        assert flow.prompt_bytes(40) <= kept  # but for the tails of convolutions


def test_the_cache_holds_four_voices_or_says_why_not(monkeypatch: pytest.MonkeyPatch) -> None:
    with meta_init():
        flow = Flow(CONFIGS["standard"])
    one = flow.prompt_bytes(PROMPT_TOKENS)
    assert one == pytest.approx(2.31e9, rel=0.01)
    for free, wanted in ((100e9, N_PROMPTS * one), (None, N_PROMPTS * one), (8e9, 4e9)):
        n_free = None if free is None else int(free)
        monkeypatch.setattr(decoder, "free_bytes", lambda _device, n=n_free: n)
        given, why = prompt_cache_bytes(flow, HOST)
        assert given == int(wanted)
        assert bool(why) is (given < N_PROMPTS * one)
    assert why == "room for 1 of 4 voices of 10 s, 2.3 GB each: cpu has 8.0 GB free"
