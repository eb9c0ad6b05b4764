"""Both heads of the vocoder by MLX against torch, with random weights."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("mlx.core", reason="MLX is not installed")

from nightingale.backends.mlx.device import choose
from nightingale.backends.mlx.vocoder import MlxVocoder
from tests.backends.torch.vocoder.small import small_mel, small_vocoder


@pytest.mark.parametrize("head", ["spectrum", "filter"])
def test_vocoder_by_mlx_equals_torch(head: str) -> None:
    slow, mel = small_vocoder(head=head), small_mel(n_frames=12)
    fast = MlxVocoder(slow, choose("cpu"))
    drawn = torch.randn(12 * 480, 2, generator=torch.Generator().manual_seed(0))
    source = drawn if head == "filter" else 0.1 * drawn[:, 0]
    made, wanted = fast.filter(mel, source), slow.filter(mel, source)
    assert (fast.f0(mel) - slow.f0(mel)).abs().max() < 1e-3
    assert wanted.std() > 0.01
    assert (made - wanted).abs().max() < 1e-4
