"""The vocoder's discriminator: learns to tell, and is not changed by who learns from it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from training.discriminator import (
    Discriminator,
    adversarial_loss,
    discriminator_loss,
    feature_matching_loss,
)


def tones_and_noise() -> tuple[Tensor, Tensor]:
    time = torch.arange(6000) / 24_000
    tones = torch.stack([(2 * torch.pi * hz * time).sin() for hz in (150.0, 220.0)]) * 0.1
    return tones, 0.1 * torch.randn(2, 6000, generator=torch.Generator().manual_seed(0))


@pytest.mark.slow
def test_it_learns_to_tell_tones_from_noise() -> None:
    torch.manual_seed(0)
    discriminator, (tones, noise) = Discriminator(), tones_and_noise()
    optimizer = torch.optim.Adam(discriminator.parameters(), 3e-3)
    first = float(discriminator_loss(discriminator(tones), discriminator(noise)).detach())
    for _ in range(25):
        optimizer.zero_grad()
        discriminator_loss(discriminator(tones), discriminator(noise)).backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    assert (
        float(discriminator_loss(discriminator(tones), discriminator(noise)).detach()) < first / 3
    )
    assert float(adversarial_loss(discriminator(noise)).detach()) > 3 * float(
        adversarial_loss(discriminator(tones)).detach()
    )


def test_who_learns_from_it_does_not_change_it() -> None:
    discriminator, (tones, noise) = Discriminator(), tones_and_noise()
    made = noise.requires_grad_()
    seen = discriminator.frozen(made)
    (adversarial_loss(seen) + feature_matching_loss(discriminator(tones), seen)).backward()  # type: ignore[no-untyped-call]
    assert made.grad is not None
    assert float(made.grad.abs().max()) > 0
    assert all(p.grad is None or not p.grad.any() for p in discriminator.parameters())


def test_the_same_sound_is_alike() -> None:
    discriminator, (tones, noise) = Discriminator(), tones_and_noise()
    assert float(feature_matching_loss(discriminator(tones), discriminator(tones)).detach()) == 0
    assert float(feature_matching_loss(discriminator(tones), discriminator(noise)).detach()) > 0
