"""A deeper flow out of the one that ships."""

from __future__ import annotations

import itertools

import pytest
import torch

from nightingale.backends.torch.flow.estimator import Block
from nightingale.backends.torch.flow.model import Flow
from training import corpus, refine
from training.flow import Batch, losses


def batch() -> Batch:
    random = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, 6561, (1, 20), generator=random)
    mel, xvector = (torch.randn(*size, generator=random) for size in ((1, 40, 80), (1, 192)))
    return Batch(tokens, mel, xvector, 5, None)


def loss(flow: Flow) -> float:
    torch.manual_seed(1)
    with torch.no_grad():
        return float(losses(flow, batch())["loss"])


def test_a_block_that_is_identity_changes_nothing_and_another_does() -> None:
    flow = refine.shipped()
    before = loss(flow)
    config = flow.config.estimator
    extra = Block(config, config.d_model, ends=False)
    refine.make_identity(extra)
    flow.estimator.mid_blocks.append(extra)
    assert loss(flow) == before
    with torch.no_grad():
        extra.unit.res_conv.weight.mul_(1.1)
    assert loss(flow) != before


def test_no_held_out_voice_is_learned_from_and_no_two_parts_share_an_utterance(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(corpus, "voices", lambda: ["heart", "af_bella", *corpus.HELD_OUT_VOICES])
    made = refine.jobs()
    assert not {voice for _, voice, _, _ in made} & set(corpus.HELD_OUT_VOICES)
    assert len({name for name, _, _, _ in made}) == len(made)
    own = sorted((which.start, which.stop) for _, voice, _, which in made if voice == "heart")
    assert all(stop <= start for (_, stop), (start, _) in itertools.pairwise(own))
