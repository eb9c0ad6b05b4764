"""Identities of the flow: what is folded, batched or skipped gives what the long way gives."""

from __future__ import annotations

import dataclasses
from itertools import pairwise
from typing import Any, cast

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nightingale.backends.torch.flow.encoder import RelativeAttention, distance_waves
from nightingale.backends.torch.flow.estimator import Estimator, time_waves
from nightingale.backends.torch.flow.model import Decoder, Flow, frame_noise
from nightingale.backends.torch.flow.solver import Schedule
from tests.backends.torch.flow.random_weights import randomize
from tests.backends.torch.flow.tiny import tiny_flow, tiny_prompt, tiny_tokens

DECODERS: list[Decoder] = ["standard", "meanflow"]
EPSILON = 1e-10  # in float64, where only the order of summation differs


def parts(flow: Flow, *, odd: bool = True) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """mu, speaker, cond and noise of one utterance."""
    prompt = tiny_prompt(odd=odd)
    mu = flow.encode(tiny_tokens(), prompt)
    n_prompt, n_frames = prompt.mel.shape[0], mu.shape[0]
    noise = frame_noise(5, n_prompt, n_frames - n_prompt, 80).to(mu)
    return mu, flow.speaker(prompt), flow.condition(prompt, n_frames), noise


def slow_unit(weights: dict[str, Tensor], x: Tensor, time: Tensor) -> Tensor:
    """(1, C, T): no folding, and torch's own padding, cut at the right, instead of ours."""

    def conv_norm(name: str, x: Tensor) -> Tensor:
        conv, bias = weights[f"{name}.block.0.weight"], weights[f"{name}.block.0.bias"]
        h = F.conv1d(x, conv, bias, padding=2)[..., : x.shape[-1]]
        norm = weights[f"{name}.block.2.weight"], weights[f"{name}.block.2.bias"]
        return F.mish(F.layer_norm(h.mT, (h.shape[1],), *norm).mT)

    h = conv_norm("block1", x)
    h = h + F.linear(F.mish(time), weights["mlp.1.weight"], weights["mlp.1.bias"])[..., None]
    return conv_norm("block2", h) + F.conv1d(
        x, weights["res_conv.weight"], weights["res_conv.bias"]
    )


def slow_velocity(model: Estimator, inputs: list[Tensor], start: Tensor, end: Tensor) -> Tensor:
    """One row, one moment, everything anew: the estimator as it is defined, (M, 80)."""
    x, mu, speaker, cond = inputs
    n_inputs = model.config.n_inputs
    time = model.time_mlp(time_waves(start[None], n_inputs).double())
    if model.time_embed_mixer is not None:
        until = model.time_mlp(time_waves(end[None], n_inputs).double())
        time = model.time_embed_mixer(torch.cat((time, until), dim=-1))
    h = torch.cat((x, mu, speaker.expand_as(mu), cond), dim=-1).T[None]
    skip: Tensor | None = None
    for blocks in (model.down_blocks, model.mid_blocks, model.up_blocks):
        if blocks is model.up_blocks:
            assert skip is not None
            h = torch.cat((h, skip), dim=1)
        for block in cast("list[Any]", blocks):
            h = block.transform(slow_unit(block[0].state_dict(), h, time).mT).mT
            if blocks is model.down_blocks:
                skip = h
            if len(block) == 3:
                conv = block[2].state_dict()
                h = F.conv1d(F.pad(h, (2, 0)), conv["weight"], conv["bias"])
    velocity: Tensor = model.final_proj(model.final_block(h.mT).mT)
    return velocity[0].T


@pytest.mark.slow
@pytest.mark.parametrize("decoder", DECODERS)
@torch.inference_mode()
def test_every_folded_step_is_the_unfolded_one(decoder: Decoder) -> None:
    """Also: the batch of two that guidance runs is two passes of one row each."""
    flow = tiny_flow(decoder).double()
    schedule = flow.config.schedule
    mu, speaker, cond, x = parts(flow)
    nothing = [torch.zeros_like(part) for part in (mu, speaker, cond)]
    times = schedule.times()
    steps = list(flow.solve(mu, speaker, cond, x))
    assert len(steps) == schedule.n_steps
    for number, (start, end) in enumerate(pairwise(times)):
        velocity = slow_velocity(flow.estimator, [x, mu, speaker, cond], start, end)
        if schedule.guidance:
            without = slow_velocity(flow.estimator, [x, *nothing], start, end)
            velocity = 1.7 * velocity - 0.7 * without
        x = x + (end - start).double() * velocity
        assert torch.allclose(steps[number], x, atol=EPSILON, rtol=0), f"step {number + 1}"


@torch.inference_mode()
def test_without_guidance_one_row_is_the_first_of_two() -> None:
    flow = tiny_flow().double()
    mu, speaker, cond, x = parts(flow)
    model = flow.estimator
    shifts = model.shifts(torch.tensor([0.25]), torch.tensor([0.5]))[0]
    one, two = (
        model(x[None], model.context(mu[None], speaker[None], cond[None], guided=guided), shifts)
        for guided in (False, True)
    )
    assert one.shape[0] == 1
    assert two.shape[0] == 2
    assert torch.allclose(one[0], two[0], atol=EPSILON, rtol=0)
    assert not torch.allclose(two[0], two[1])


def slow_attention(attention: RelativeAttention, x: Tensor) -> Tensor:
    """(1, T, D), pair by pair; with a bias of the keys, as the released files have it."""
    n, width = x.shape[1:]
    place = torch.arange(n)
    distance = place[:, None] - place  # of query i and key j

    def heads(y: Tensor) -> Tensor:
        return y.view(n, attention.n_heads, -1).transpose(0, 1)

    q, v = heads(attention.linear_q(x)[0]), heads(attention.linear_v(x)[0])
    k = heads(attention.linear_k(x)[0] + 0.7 * torch.arange(width))
    waves = attention.linear_pos(distance_waves(n, width).double())[n - 1 - distance]  # (T, T, D)
    p = waves.view(n, n, attention.n_heads, -1)
    content = torch.einsum("hid,hjd->hij", q + attention.pos_bias_u[:, None], k)
    apart = torch.einsum("hid,ijhd->hij", q + attention.pos_bias_v[:, None], p)
    weights = ((content + apart) / (width // attention.n_heads) ** 0.5).softmax(-1)
    out: Tensor = attention.linear_out((weights @ v).transpose(0, 1).flatten(1))
    return out[None]


@pytest.mark.parametrize("n", [1, 2, 7])
@torch.inference_mode()
def test_relative_attention_is_softmax_over_content_and_distance(n: int) -> None:
    """Also: the bias of the keys that is not carried along would change nothing."""
    attention = RelativeAttention(24, 2).double()
    randomize(attention, 3)
    x = torch.randn(1, n, 24, dtype=torch.float64, generator=torch.Generator().manual_seed(n))
    fast = attention(x, lambda n_before: distance_waves(n, 24, n_before).double())
    assert torch.allclose(fast, slow_attention(attention, x), atol=EPSILON, rtol=0)


@torch.inference_mode()
def test_the_encoder_is_its_parts_in_a_row() -> None:
    """Two entrances that scale, a look ahead behind the first, a doubling before the second."""
    flow = tiny_flow().double()
    encoder, x = flow.encoder, flow.input_embedding(tiny_tokens())[None]
    up = encoder.up_layer.conv

    def through(blocks: nn.ModuleList, h: Tensor) -> Tensor:
        for block in cast("list[Any]", blocks):
            h = h + slow_attention(block.self_attn, block.norm_mha(h))
            h = h + block.feed_forward.w_2(F.silu(block.feed_forward.w_1(block.norm_ff(h))))
        return h

    h = encoder.pre_lookahead_layer(encoder.embed.out(x) * 48**0.5)
    h = F.interpolate(through(encoder.encoders, h).mT, scale_factor=2.0, mode="nearest")
    h = F.conv1d(F.pad(h, (4, 0)), up.weight, up.bias).mT
    h = encoder.after_norm(through(encoder.up_encoders, encoder.up_embed.out(h) * 48**0.5))
    assert torch.allclose(encoder(x), h, atol=EPSILON, rtol=0)


@pytest.mark.parametrize("decoder", [pytest.param("standard", marks=pytest.mark.slow), "meanflow"])
def test_a_request_is_a_pure_function_of_its_arguments(decoder: Decoder) -> None:
    flow = tiny_flow(decoder)
    first = flow.render(tiny_tokens(), tiny_prompt(), seed=1)
    torch.manual_seed(123)  # the global generator has no say
    flow.render(tiny_tokens(4, 30), tiny_prompt(4, 31), seed=9)
    state = torch.get_rng_state()
    assert torch.equal(flow.render(tiny_tokens(), tiny_prompt(), seed=1), first)
    assert torch.equal(torch.get_rng_state(), state)
    assert not torch.allclose(flow.render(tiny_tokens(), tiny_prompt(), seed=2), first)
    assert not torch.allclose(flow.render(tiny_tokens(1), tiny_prompt(), seed=1), first)
    for name, value in vars_of_another_voice().items():
        voice = dataclasses.replace(tiny_prompt(), **{name: value})
        assert not torch.allclose(flow.render(tiny_tokens(), voice, seed=1), first), name


def vars_of_another_voice() -> dict[str, Any]:
    other = tiny_prompt(1)
    return {"tokens": other.tokens, "mel": other.mel, "xvector": other.xvector}


def test_a_frame_has_its_own_noise_whatever_stands_around_it() -> None:
    noise = frame_noise(3, 24, 18, 80)
    assert torch.equal(frame_noise(3, 24, 40, 80)[:42], noise)  # more is said
    assert torch.equal(frame_noise(3, 11, 18, 80)[11:], noise[24:])  # another recording
    assert torch.equal(frame_noise(3, 11, 18, 80)[:11], noise[:11])
    assert len({tuple(row) for row in noise.tolist()}) == 42  # and no two are the same
    assert not torch.equal(frame_noise(4, 24, 18, 80), noise)


@pytest.mark.parametrize("odd", [False, True])
def test_render_begins_with_the_noise_of_its_seed(odd: bool) -> None:
    flow, prompt = tiny_flow("meanflow"), tiny_prompt(odd=odd)
    noise = frame_noise(6, 24 + odd, 18 - odd, 80)
    given = flow.render(tiny_tokens(), prompt, seed=0, noise=noise)
    assert torch.equal(flow.render(tiny_tokens(), prompt, seed=6), given)


@pytest.mark.slow
@pytest.mark.parametrize("decoder", DECODERS)
def test_render_is_the_last_step_behind_the_prompt(decoder: Decoder) -> None:
    flow = tiny_flow(decoder)
    mu, speaker, cond, noise = parts(flow)
    *_, last = flow.solve(mu, speaker, cond, noise)
    assert torch.equal(flow.render(tiny_tokens(), tiny_prompt(odd=True), seed=5), last[25:].T)


@pytest.mark.slow
@pytest.mark.parametrize("decoder", DECODERS)
def test_single_precision_follows_double_precision(decoder: Decoder) -> None:
    single = tiny_flow(decoder).render(tiny_tokens(), tiny_prompt(), seed=1)
    double = tiny_flow(decoder).double().render(tiny_tokens(), tiny_prompt(), seed=1)
    assert double.dtype == torch.float64
    assert float((single - double).abs().max()) < 1e-4
    half = tiny_flow(decoder).bfloat16().render(tiny_tokens(), tiny_prompt(), seed=1)
    assert half.dtype == torch.bfloat16
    assert float((half - double).abs().mean()) < 0.05 * float(double.abs().mean())


@pytest.mark.slow
def test_fewer_steps_and_other_guidance_are_a_field_of_the_schedule() -> None:
    flow = tiny_flow()
    steps = list(flow.solve(*parts(flow), Schedule(4, "cosine", 0.7)))
    assert len(steps) == 4
    whole = [
        flow.render(tiny_tokens(), tiny_prompt(), seed=1, schedule=schedule)
        for schedule in (None, Schedule(4, "cosine", 0.7), Schedule(10, "linear", 0.7),
                         Schedule(10, "cosine", 0.0))
    ]  # fmt: skip
    assert all(not torch.allclose(whole[0], other) for other in whole[1:])
