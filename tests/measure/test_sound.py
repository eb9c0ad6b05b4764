"""How a clip is cut for the judge of sound; its network is tried in tests/quality."""

from __future__ import annotations

import pytest
import torch

from nightingale.measure.sound import N_PIECE, pieces


@pytest.mark.parametrize(
    ("n_samples", "n_pieces"),
    [
        (0, 1),
        (100, 1),
        (N_PIECE, 1),
        (N_PIECE + 1, 2),
        (N_PIECE + 16_000, 2),
        (N_PIECE + 16_001, 3),
    ],
)
def test_a_clip_is_covered_in_steps_of_a_second_at_most(n_samples: int, n_pieces: int) -> None:
    wave = torch.arange(1.0, n_samples + 1)
    cut = pieces(wave)
    assert cut.shape == (n_pieces, N_PIECE)
    if n_samples >= N_PIECE:
        assert cut[0, 0] / cut[0, -1] == pytest.approx(1 / N_PIECE)
        assert cut[-1, 0] / cut[-1, -1] == pytest.approx((n_samples - N_PIECE + 1) / n_samples)
    else:
        assert (cut[0, n_samples:] == 0).all()


def test_every_piece_is_as_loud_as_can_be() -> None:
    wave = torch.cat((torch.full((N_PIECE,), 0.01), torch.full((N_PIECE,), -0.5)))
    assert pieces(wave).abs().amax(dim=1) == pytest.approx(torch.ones(9), abs=1e-4)
    assert pieces(torch.zeros(10)).abs().max() == 0
