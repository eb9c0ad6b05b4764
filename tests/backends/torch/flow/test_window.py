"""Frames behind cached ones are rendered as if all had been rendered at once, with a mask."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor

from nightingale.backends.torch.flow.fast import FastEstimator
from nightingale.backends.torch.flow.fast_encoder import FastEncoder
from nightingale.backends.torch.flow.model import Decoder, Flow
from nightingale.backends.torch.flow.solver import Schedule, guide, solve_chunk
from nightingale.backends.torch.flow.window import LayerCaches, StepCaches, Window
from nightingale.nn.fused import amx_library
from tests.backends.torch.flow.test_fast import small_flow
from tests.backends.torch.flow.tiny import tiny_prompt, tiny_tokens

CUTS = (0, 20, 34, 35, 60)  # frames
DECODERS: tuple[Decoder, ...] = ("standard", "meanflow")


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(params=["slow", "fast"])
def flow(request: pytest.FixtureRequest) -> Flow:
    made = small_flow("standard")
    if request.param == "fast":
        request.getfixturevalue("amx")
        made.decoder["estimator"] = FastEstimator(made.estimator, amx_library())
        made.encoder = FastEncoder(made.encoder, amx_library())  # type: ignore[assignment]
    return made


def in_windows(
    flow: Flow, mu: Tensor, cond: Tensor, noise: Tensor, cuts: tuple[int, ...]
) -> Tensor:
    """Every window sees all before it."""
    memories: list[StepCaches] = []
    parts = []
    for start, end in itertools.pairwise(cuts):
        here = slice(start, end)
        schedule, speaker = Schedule(3, "cosine", 0.7), drawn(1, 80, seed=5)
        (part,), (left,) = solve_chunk(
            flow.estimator, mu[None, here], speaker, cond[None, here], noise[None, here],
            schedule, [memories],
        )  # fmt: skip
        memories.append(left)
        parts.append(part)
    return torch.cat(parts)


def masked(flow: Flow, mu: Tensor, cond: Tensor, noise: Tensor, cuts: tuple[int, ...]) -> Tensor:
    """The same by one pass over everything, where nobody may look into a later window."""
    number = torch.bucketize(torch.arange(len(mu)), torch.tensor(cuts[1:-1]), right=True)
    mask = number[None, :] <= number[:, None]
    estimator, schedule = small_flow("standard").estimator, Schedule(3, "cosine", 0.7)
    times = schedule.times()
    shifts = estimator.shifts(times[:-1], times[1:])
    known = torch.cat((mu, drawn(80, seed=5).expand_as(mu), cond), dim=-1)
    both = torch.stack((known, torch.zeros_like(known)))
    first, *middle, last = estimator.blocks()
    x = noise
    for shift, size in zip(shifts, times.diff().tolist(), strict=True):
        skip = first(torch.cat((x.expand(2, -1, -1), both), dim=-1), shift[0], mask)
        h = first.end(skip)
        for block, step_shift in zip(middle, shift[1:-1], strict=True):
            h = block(h, step_shift, mask)
        h = last.end(last(torch.cat((h, skip), dim=-1), shift[-1], mask))
        final = estimator.final_proj
        velocity = estimator.final_block(h) @ final.weight[..., 0].T + final.bias
        x = x + size * guide(velocity, schedule.guidance)[0]
    return x


@pytest.mark.slow
def test_windows_are_the_whole_with_a_mask(flow: Flow) -> None:
    mu, cond, noise = (drawn(CUTS[-1], 80, seed=s) for s in range(3))
    with torch.inference_mode():
        made, wanted = (make(flow, mu, cond, noise, CUTS) for make in (in_windows, masked))
    distance = (made - wanted).abs().max() / wanted.std()
    assert distance < (0.1 if isinstance(flow.estimator, FastEstimator) else 1e-4)


def test_one_window_is_the_plain_whole(flow: Flow) -> None:
    mu, cond, noise = (drawn(30, 80, seed=s) for s in range(3))
    schedule = Schedule(3, "cosine", 0.7)
    *_, whole = flow.solve(mu, drawn(80, seed=5), cond, noise, schedule)
    assert torch.equal(in_windows(flow, mu, cond, noise, (0, 30)), whole)


@pytest.mark.slow
def test_tokens_are_encoded_in_windows_as_in_the_whole_with_a_mask(flow: Flow) -> None:
    """Each window looks three tokens ahead, and back at all before it."""
    cuts, n_ahead = (0, 10, 17, 18, 30), 3
    x = drawn(1, cuts[-1], flow.config.encoder.d_model)
    caches: list[LayerCaches] = []
    parts = []
    for start, end in itertools.pairwise(cuts):
        left = LayerCaches()
        ahead = n_ahead if end < cuts[-1] else 0
        window = Window(list(caches), left)
        parts.append(flow.encoder(x[:, start : end + ahead], n_ahead=ahead, window=window))
        caches.append(left)
    number = torch.bucketize(torch.arange(cuts[-1]), torch.tensor(cuts[1:-1]), right=True)
    wanted = small_flow("standard").encoder(x, number[None, :] <= number[:, None])
    distance = (torch.cat(parts, dim=1) - wanted).norm() / wanted.norm()
    assert distance < (0.03 if isinstance(flow.encoder, FastEncoder) else 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("decoder", DECODERS)
def test_a_rendered_recording_is_heard_and_suits_every_request(decoder: Decoder) -> None:
    flow, prompt, tokens = small_flow(decoder), tiny_prompt(n_tokens=12), tiny_tokens(n_tokens=9)
    flow_state = flow.prefill(prompt)
    assert flow_state.n_bytes > 0
    assert len(flow_state.rendered[0].steps) == flow.config.schedule.n_steps
    one, again = (flow.render_chunk(tokens, prompt, flow_state, 3)[0] for _ in range(2))
    assert one.shape == (80, 18)
    assert torch.equal(one, again)
    other = flow.prefill(tiny_prompt(seed=4, n_tokens=12))
    assert (one - flow.render_chunk(tokens, prompt, other, 3)[0]).abs().max() > 0.01
    assert (one - flow.render_chunk(tokens, prompt, flow_state, 4)[0]).abs().max() > 0.01


def test_a_recording_of_an_odd_length_is_rendered() -> None:
    flow, prompt = small_flow("meanflow"), tiny_prompt(n_tokens=7, odd=True)
    mel, _ = flow.render_chunk(tiny_tokens(), prompt, flow.prefill(prompt), 0)
    assert mel.shape == (80, 18)


@pytest.mark.slow
def test_an_utterance_in_windows_can_be_gone_on_from_anywhere(flow: Flow) -> None:
    """Twice from the same place gives the same; what is out of sight is let go."""
    prompt, tokens = tiny_prompt(n_tokens=12), tiny_tokens(n_tokens=40)
    flow_state, parts, places = flow.prefill(prompt), [], []
    for start, end in itertools.pairwise((0, 6, 14, 24, 40)):
        places.append((start, end, flow_state))
        ahead = 3 if end < 40 else 0
        window = tokens[start : end + ahead]
        mel, flow_state = flow.render_chunk(window, prompt, flow_state, 5, n_ahead=ahead)
        parts.append(mel)
    assert flow_state.n_frames == 80
    assert len(flow_state.rendered) == 3  # the recording and the last two
    start, end, place = places[2]
    again, _ = flow.render_chunk(tokens[start : end + 3], prompt, place, 5, n_ahead=3)
    assert torch.equal(again, parts[2])
    assert torch.cat(parts, dim=1).shape == (80, 80)


def test_a_window_hands_on_what_came_before() -> None:
    first = LayerCaches()
    window = Window((), first)
    x = drawn(1, 5, 3)
    assert torch.equal(window.past(x, 2)[:, :2], torch.zeros(1, 2, 3))
    window.reach(x, x + 1)
    later = Window([first], second := LayerCaches())
    assert torch.equal(later.past(x, 2)[:, :2], x[:, -2:])
    keys, values = later.reach(x, x)
    assert torch.equal(torch.stack(keys), torch.stack((x, x)))
    assert torch.equal(torch.stack(values), torch.stack((x + 1, x)))
    assert second.keys[0].shape == (1, 5, 3)
