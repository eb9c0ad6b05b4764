"""The vocoder's critic: learns to tell, and is not changed by who learns from it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from training.critic import Critic, feature_matching_loss, lesson, reproach


def hums_and_noise() -> tuple[Tensor, Tensor]:
    time = torch.arange(6000) / 24_000
    hums = torch.stack([(2 * torch.pi * hz * time).sin() for hz in (150.0, 220.0)]) * 0.1
    return hums, 0.1 * torch.randn(2, 6000, generator=torch.Generator().manual_seed(0))


@pytest.mark.slow
def test_it_learns_to_tell_hums_from_noise() -> None:
    torch.manual_seed(0)
    critic, (hums, noise) = Critic(), hums_and_noise()
    optimizer = torch.optim.Adam(critic.parameters(), 3e-3)
    first = float(lesson(critic(hums), critic(noise)).detach())
    for _ in range(25):
        optimizer.zero_grad()
        lesson(critic(hums), critic(noise)).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    assert float(lesson(critic(hums), critic(noise)).detach()) < first / 3
    assert float(reproach(critic(noise)).detach()) > 3 * float(reproach(critic(hums)).detach())


def test_who_learns_from_it_does_not_change_it() -> None:
    critic, (hums, noise) = Critic(), hums_and_noise()
    made = noise.requires_grad_()
    seen = critic.frozen(made)
    (reproach(seen) + feature_matching_loss(critic(hums), seen)).backward()  # type: ignore[no-untyped-call]
    assert made.grad is not None
    assert float(made.grad.abs().max()) > 0
    assert all(p.grad is None or not p.grad.any() for p in critic.parameters())


def test_the_same_sound_is_alike() -> None:
    critic, (hums, noise) = Critic(), hums_and_noise()
    assert float(feature_matching_loss(critic(hums), critic(hums)).detach()) == 0
    assert float(feature_matching_loss(critic(hums), critic(noise)).detach()) > 0
