"""The pitch predictor at the ends of utterances."""

from __future__ import annotations

import torch

from nightingale.backends.torch.vocoder.model import F0_CONTEXT
from training.pitch import N_FRAMES, SILENT, amid_silence, draw, losses, shipped, wrong


def silence(n: int) -> torch.Tensor:
    return torch.full((n, 80, N_FRAMES), SILENT)


def test_the_predictor_that_ships_calls_silence_unvoiced_to_its_ends() -> None:
    predictor = shipped().f0_predictor
    assert float(predictor(silence(1)).max()) < 10
    assert wrong(predictor, predictor, silence(1)).startswith("0.0%")


def test_the_first_predictors_fault_is_noticed() -> None:
    """Zeros beyond the ends, as if they were loud: what it said of every utterance."""
    predictor = shipped().f0_predictor

    class Faulty(torch.nn.Module):
        def forward(self, mel: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = predictor(mel).clone()
            if mel.shape[2] == N_FRAMES:
                found[:, -1] = 20.0
            return found

    assert wrong(Faulty(), predictor, silence(2)).startswith("50.0%")
    assert float(losses(Faulty(), predictor, silence(2))["loss"]) > 0


def test_what_lies_between_the_ends_is_the_same() -> None:
    predictor = shipped().f0_predictor
    mel = torch.randn(2, 80, N_FRAMES, generator=torch.Generator().manual_seed(0)) - 5
    inner = slice(F0_CONTEXT, -F0_CONTEXT)
    found, wanted = predictor(mel), amid_silence(predictor, mel)
    assert torch.allclose(found[:, inner], wanted[:, inner], atol=0.01)


def test_pieces_are_beginnings_ends_and_others() -> None:
    mel = torch.arange(100.0).expand(80, 100)
    first = draw([mel], 300, 0)[:, 0, 0]
    assert 60 < int((first == 0).sum()) < 140
    assert 60 < int((first == 100 - N_FRAMES).sum()) < 140
    assert len(set(first.tolist())) > 20
