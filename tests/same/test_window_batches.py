"""Windows of several requests that share a pass of the flow sound as each of them alone."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from nightingale.backends.base import DecodedWindow, TokenWindow, WindowJob
from nightingale.backends.torch.decoder import WindowedDecoder
from nightingale.backends.torch.flow.model import Decoder, Flow, FlowChunk
from nightingale.backends.torch.flow.window import JointWindow
from nightingale.core import Plan
from nightingale.nn import deterministic
from tests.backends.torch.flow.tiny import tiny_prompt, tiny_tokens
from tests.backends.torch.vocoder.small import small_vocoder
from tests.tiny_release import release_flow

DECODERS: tuple[Decoder, ...] = ("standard", "meanflow")
ANY_NUMBER, N_SLOTS = 0, 4
SIZES = (4, 9)  # even and odd: the ends of tensors are computed in another way


def chunks(flow: Flow, n: int, n_tokens: int = 11) -> list[FlowChunk]:
    """No two are alike, and each has a voice of its own length."""
    prompts = [tiny_prompt(number, 9 + number) for number in range(n)]
    return [
        FlowChunk(tiny_tokens(number, n_tokens), prompt, flow.prefill(prompt), number)
        for number, prompt in enumerate(prompts)
    ]


def mels(flow: Flow, work: Sequence[FlowChunk], n_rows: int = 0) -> list[Tensor]:
    return [mel for mel, _ in flow.render_chunks(work, n_ahead=3, n_rows=n_rows)]


@pytest.mark.parametrize("n_threads", [1, pytest.param(2, marks=pytest.mark.slow)])
@pytest.mark.parametrize("decoder", DECODERS)
def test_company_changes_no_bit_of_a_window(decoder: Decoder, n_threads: int) -> None:
    flow = release_flow(decoder)
    work = chunks(flow, 4)
    before = torch.get_num_threads()
    torch.set_num_threads(n_threads)
    try:
        alone = [mels(flow, [chunk])[0] for chunk in work]
        for company in ((0, 1), (3, 0, 2), (1, 3, 2, 0)):
            together = mels(flow, [work[number] for number in company])
            for number, mel in zip(company, together, strict=True):
                assert torch.equal(mel, alone[number]), (company, number)
    finally:
        torch.set_num_threads(before)


def windowed(flow: Flow, window_slots: int) -> WindowedDecoder:
    plan = Plan(window_slots=window_slots, window_sizes=SIZES, vocoder_lookahead=6)
    return WindowedDecoder(flow, small_vocoder(), plan, drops_last=False, max_prompt_bytes=2**30)


def windows(number: int, n_ends: int) -> list[TokenWindow]:
    """Of each size one, and a last one whose size is its own."""
    tokens, at, made = tiny_tokens(number, 60).tolist(), 0, []
    for size in SIZES:
        made.append(TokenWindow(tokens[at : at + size + 3], is_last=False))
        at += size
    return [*made, TokenWindow(tokens[at : at + n_ends], is_last=True)]


def decoded(decoder: WindowedDecoder, numbers: Sequence[int]) -> list[list[DecodedWindow]]:
    """Utterances side by side, window after window."""
    states: list[Any] = [decoder.start(tiny_prompt(n, 9 + n), n) for n in numbers]
    work, said = [windows(n, 3 + n % 2) for n in numbers], list[list[DecodedWindow]]()
    for step in range(len(SIZES) + 1):
        jobs = [WindowJob(own[step], at) for own, at in zip(work, states, strict=True)]
        said.append(decoder.decode(jobs))
        states = [one.state for one in said[-1]]
    return [list(own) for own in zip(*said, strict=True)]


def sounds_alike(one: Sequence[DecodedWindow], other: Sequence[DecodedWindow]) -> bool:
    pairs = zip(one, other, strict=True)
    return all(
        np.array_equal(a.samples, b.samples) and a.state.to_bytes() == b.state.to_bytes()
        for a, b in pairs
    )


@pytest.mark.slow
@pytest.mark.parametrize("window_slots", [ANY_NUMBER, N_SLOTS])
@pytest.mark.parametrize("decoder", DECODERS)
def test_utterances_beside_each_other_sound_as_alone(decoder: Decoder, window_slots: int) -> None:
    """More than there are slots, so that passes of all kinds of company come about."""
    made = windowed(release_flow(decoder), window_slots)
    alone = [decoded(made, [number])[0] for number in range(5)]
    together = decoded(made, range(5))
    for number, (one, other) in enumerate(zip(alone, together, strict=True)):
        assert sounds_alike(one, other), number


@pytest.mark.slow
def test_a_leak_between_requests_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    made = windowed(release_flow("meanflow"), ANY_NUMBER)
    alone = [decoded(made, [number])[0] for number in range(3)]
    attend = JointWindow.attend

    def leaky(self: Any, attention: Any, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        return attend(self, attention, queries + 1e-3 * queries.roll(1, 0), keys, values)

    monkeypatch.setattr(JointWindow, "attend", leaky)
    together = decoded(made, range(3))
    assert not any(itertools.starmap(sounds_alike, zip(alone, together, strict=True)))


def test_rows_that_depend_on_their_number_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    assert deterministic.rows_are_independent()
    plain = deterministic.linear
    monkeypatch.setattr(
        deterministic, "linear", lambda x, *rest: plain(x, *rest) * (1 + 1e-6 * (len(x) > 30))
    )
    assert not deterministic.rows_are_independent.__wrapped__()


@pytest.mark.slow
@pytest.mark.parametrize("n_requests", [1, 3, 4])
def test_a_pass_of_fixed_shape_has_that_shape(
    n_requests: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However few requests there are; and only theirs are attended to."""
    flow = release_flow("standard")
    seen, plain = set[int](), type(flow.estimator).forward

    def noted(self: Any, x: Tensor, *rest: Any) -> Tensor:
        seen.add(len(x))
        return plain(self, x, *rest)

    work = chunks(flow, n_requests)
    monkeypatch.setattr(type(flow.estimator), "forward", noted)
    rendered = flow.render_chunks(work, n_ahead=3, n_rows=N_SLOTS)
    assert seen == {N_SLOTS}
    assert len(rendered) == n_requests
    widths = {len(state.rendered[-1].steps[0].keys[0]) for _, state in rendered}
    assert widths == {2}, "what a request leaves is its own two rows"


@pytest.mark.slow
def test_the_limit_of_a_pass_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    made = windowed(release_flow("meanflow"), ANY_NUMBER)
    sizes, plain = list[int](), Flow.render_chunks

    def noted(self: Flow, work: Sequence[FlowChunk], **rest: Any) -> Any:
        sizes.append(len(work))
        return plain(self, work, **rest)

    monkeypatch.setattr(Flow, "render_chunks", noted)
    decoded(made, range(5))
    assert sizes == [4, 1] * len(SIZES) + [1] * 5, "the last windows are rendered one by one"
    few = replace(made._plan, window_slots=1)
    alone = WindowedDecoder(made.flow, made.vocoder, few, drops_last=False, max_prompt_bytes=2**30)
    sizes.clear()
    decoded(alone, range(2))
    assert set(sizes) == {1}
