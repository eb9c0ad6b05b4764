"""The estimator in bfloat16 is the estimator, nearly."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from nightingale.backends.torch.flow.fast import FastEstimator
from nightingale.backends.torch.flow.fast_encoder import FastEncoder
from nightingale.backends.torch.flow.model import Decoder, Flow
from nightingale.nn.fused import amx_library
from tests.backends.torch.flow.random_weights import randomize
from tests.backends.torch.flow.tiny import tiny_config, tiny_prompt, tiny_tokens


def small_flow(decoder: Decoder) -> Flow:
    """Heads as wide as AMX code wants them."""
    tiny = tiny_config(decoder)
    flow = Flow(replace(tiny, estimator=replace(tiny.estimator, d_head=32)))
    randomize(flow, 0)
    return flow.eval().requires_grad_(False)


def fast(slow: Flow) -> Flow:
    slow.decoder["estimator"] = FastEstimator(slow.estimator, amx_library())
    slow.encoder = FastEncoder(slow.encoder, amx_library())  # type: ignore[assignment]
    return slow


@pytest.mark.usefixtures("amx")
# Ten steps of emulated instructions are slow; two show the same.
@pytest.mark.parametrize("decoder", [pytest.param("standard", marks=pytest.mark.slow), "meanflow"])
class TestOnAMX:
    @pytest.mark.slow
    def test_mel_is_near_that_of_fp32(self, decoder: Decoder) -> None:
        prompt, tokens = tiny_prompt(n_tokens=9), tiny_tokens(n_tokens=14)
        exact = small_flow(decoder).render(tokens, prompt, 3)
        near = fast(small_flow(decoder)).render(tokens, prompt, 3)
        distance = (near - exact).abs().mean() / exact.std()
        assert 1e-5 < distance < 0.03
        assert near.dtype == torch.float32

    @pytest.mark.slow
    def test_encoder_output_is_near_that_of_fp32(self, decoder: Decoder) -> None:
        prompt, tokens = tiny_prompt(n_tokens=9), tiny_tokens(n_tokens=140)
        exact = small_flow(decoder).encode(tokens, prompt)
        near = fast(small_flow(decoder)).encode(tokens, prompt)
        assert near.dtype == torch.float32
        assert 1e-5 < (near - exact).norm() / exact.norm() < 0.03

    @pytest.mark.slow
    def test_one_and_two_threads_give_the_same_mel(self, decoder: Decoder) -> None:
        n_tokens = 70 if decoder == "meanflow" else 30  # two steps, or ten
        prompt, tokens = tiny_prompt(n_tokens=9), tiny_tokens(n_tokens=n_tokens)
        flow, made, before = fast(small_flow(decoder)), [], torch.get_num_threads()
        try:
            for n_threads in (1, 2):
                torch.set_num_threads(n_threads)
                made.append(flow.render(tokens, prompt, 3))
        finally:
            torch.set_num_threads(before)
        assert torch.equal(made[0], made[1])
