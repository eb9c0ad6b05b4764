"""The encoder's parts: who sees whom, and how distances are told."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from nightingale.backends.torch.flow.conv import CausalConv
from nightingale.backends.torch.flow.encoder import (
    Encoder,
    EncoderConfig,
    LookAhead,
    align_distances,
    distance_waves,
)
from tests.backends.torch.flow.random_weights import randomize

WIDTH, N, TOUCHED = 6, 20, 9


@torch.inference_mode()
def reached(module: nn.Module, n: int = N, at: int = TOUCHED) -> list[int]:
    """The positions of the output that change when position `at` of the input does."""
    module.double()
    randomize(module, 1)
    x = torch.randn(1, n, WIDTH, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    touched = x.clone()
    touched[:, at] += 1
    changed: Tensor = (module(x) - module(touched)).abs().amax(dim=(0, 2)) > 1e-12
    return changed.nonzero().flatten().tolist()


@pytest.mark.parametrize("n_taps", [1, 3, 5])
def test_causal_convolutions_read_only_what_stands_left(n_taps: int) -> None:
    conv = CausalConv(WIDTH, WIDTH, n_taps)
    assert reached(conv) == list(range(TOUCHED, TOUCHED + n_taps))
    assert reached(conv, n=1, at=0) == [0]


def test_a_token_sees_three_tokens_ahead_and_no_more() -> None:
    assert reached(LookAhead(WIDTH)) == list(range(TOUCHED - 3, TOUCHED + 3))


def test_frames_of_a_token_begin_with_it() -> None:
    encoder = Encoder(EncoderConfig(WIDTH, 2, 8, 1, 1))
    assert reached(encoder.up_layer) == list(range(2 * TOUCHED, 2 * TOUCHED + 6))


@pytest.mark.parametrize("at", [0, N - 1])
def test_every_token_has_a_say_in_every_frame(at: int) -> None:
    assert reached(Encoder(EncoderConfig(WIDTH, 2, 8, 1, 1)), at=at) == list(range(2 * N))


def test_waves_tell_distances_from_the_furthest_past_to_the_future() -> None:
    waves = distance_waves(3, 4)
    distance = torch.tensor([2.0, 1, 0, -1, -2, -3])
    slow = distance / 100
    expected = torch.stack((distance.sin(), distance.cos(), slow.sin(), slow.cos()), dim=1)
    assert torch.allclose(waves, expected, atol=1e-6)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_aligned_scores_stand_at_their_query_and_key(n: int) -> None:
    scores = torch.arange(2 * n * 2 * n).view(2, n, 2 * n)
    aligned = align_distances(scores)
    assert aligned.shape == (2, n, n)
    for i in range(n):
        for j in range(n):
            assert torch.equal(aligned[:, i, j], scores[:, i, n - 1 - (i - j)])
