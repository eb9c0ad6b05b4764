"""Frames as they come: pieces are the whole when enough is held back, and nearly so otherwise."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from nightingale.backends.torch.vocoder.model import Vocoder
from nightingale.backends.torch.vocoder.streaming import EXACT, VocoderState, vocode_next
from tests.backends.torch.vocoder.small import small_mel, small_vocoder

N_FRAMES = 110
# Pitch rounds by 5e-5 Hz, depending on what it is computed beside; phases add up, of more overtones
# in pulses.
SAME = {"spectrum": 1e-3, "filter": 1.5e-2}


@pytest.fixture(scope="module", params=["spectrum", "filter"])
def vocoder(request: pytest.FixtureRequest) -> Vocoder:
    return small_vocoder(head=request.param)


def in_pieces(
    vocoder: Vocoder, mel: Tensor, sizes: list[int], n_lookahead: int = EXACT
) -> list[Tensor]:
    state, pieces, at = VocoderState.start(vocoder, 3), [], 0
    for size in sizes:
        is_last = at + size >= mel.shape[1]
        piece, state = vocode_next(
            vocoder,
            mel[:, at : at + size],
            state,
            3,
            is_last=is_last,
            n_lookahead=n_lookahead,
        )
        pieces.append(piece)
        at += size
    return pieces


@pytest.mark.slow
@pytest.mark.parametrize(
    "sizes", [[110], [60, 50], [16, 20, 30, 44], [1] * 110, [3, 7, 50, 49, 1], [109, 1]]
)
def test_pieces_are_the_whole(vocoder: Vocoder, sizes: list[int]) -> None:
    mel = small_mel(n_frames=N_FRAMES)
    whole, pieces = vocoder.vocode(mel, 3), in_pieces(vocoder, mel, sizes)
    assert sum(map(len, pieces)) == len(whole)
    assert (torch.cat(pieces) - whole).abs().max() < SAME[vocoder.config.head]


@pytest.mark.slow
def test_samples_come_as_soon_as_they_may(vocoder: Vocoder) -> None:
    mel = small_mel(n_frames=N_FRAMES)
    lengths = [len(piece) // 480 for piece in in_pieces(vocoder, mel, [24, 20, 66])]
    assert lengths == [24 - EXACT, 20, 66 + EXACT]
    assert [len(p) // 480 for p in in_pieces(vocoder, mel, [24, 86], n_lookahead=6)] == [
        18,
        92,
    ]


@pytest.mark.slow
def test_the_less_is_held_back_the_more_it_differs(vocoder: Vocoder) -> None:
    mel = small_mel(n_frames=N_FRAMES)
    whole = vocoder.vocode(mel, 3)
    off = []
    for n_lookahead in (EXACT, 8, 6):
        made = torch.cat(in_pieces(vocoder, mel, [30, 30, 50], n_lookahead))
        assert len(made) == len(whole)
        off.append(float((made - whole).abs().max()))
    assert off[0] < SAME[vocoder.config.head] < off[1] < off[2]


@pytest.mark.slow
def test_what_is_kept_does_not_grow(vocoder: Vocoder) -> None:
    state = VocoderState.start(vocoder, 3)
    sizes = []
    for _ in range(6):
        _, state = vocode_next(vocoder, small_mel(n_frames=30), state, 3, is_last=False)
        sizes.append(state.mel.shape[1])
    assert sizes[1:] == [2 * EXACT] * 5


def test_a_state_can_be_gone_on_from_twice(vocoder: Vocoder) -> None:
    mel = small_mel(n_frames=60)
    _, state = vocode_next(vocoder, mel, VocoderState.start(vocoder, 3), 3, is_last=False)
    one, two = (vocode_next(vocoder, mel, state, 3, is_last=True)[0] for _ in range(2))
    assert torch.equal(one, two)
