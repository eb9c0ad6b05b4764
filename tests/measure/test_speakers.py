"""Who is nearest, and what the network behind it must be blind to."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from nightingale.errors import OptionError
from nightingale.measure.ecapa import Ecapa, EcapaConfig, decibels, filters
from nightingale.measure.speakers import Embedding, Match, centroid, match, similarity

VOICES = {"ann": (1.0, 0.0, 0.0), "ben": (0.0, 1.0, 0.0), "cat": (0.6, 0.8, 0.0)}


def pointing(*direction: float) -> Embedding:
    return centroid([np.array(direction, np.float32)])


KNOWN = {voice: pointing(*direction) for voice, direction in VOICES.items()}


@pytest.mark.parametrize(
    ("direction", "voice", "own", "other", "other_voice", "is_right"),
    [
        ((1, 0, 0), "ann", 1.0, 0.6, "cat", True),
        ((0, 1, 0), "ann", 0.0, 1.0, "ben", False),
        ((0.6, 0.8, 0), "ben", 0.8, 1.0, "cat", False),
        ((0.6, 0.8, 0), "cat", 1.0, 0.8, "ben", True),
        ((0, 0, 1), "cat", 0.0, 0.0, "ann", False),
    ],
)
def test_a_clip_is_right_when_its_own_voice_is_the_nearest(
    direction: tuple[float, ...],
    voice: str,
    own: float,
    other: float,
    other_voice: str,
    is_right: bool,
) -> None:
    found = match(pointing(*direction), voice, KNOWN)
    assert found.own == pytest.approx(own, abs=1e-6)
    assert found.other == pytest.approx(other, abs=1e-6)
    assert (found.other_voice, found.is_right) == (other_voice, is_right)


def test_a_voice_without_rivals_is_always_right() -> None:
    alone = match(pointing(1, 0, 0), "ben", {"ben": KNOWN["ben"]})
    assert alone == Match(0.0, None, None)
    assert alone.is_right


def test_a_voice_that_is_not_enrolled_is_refused() -> None:
    with pytest.raises(OptionError, match="'dan' is not among those enrolled \\(ann, ben, cat\\)"):
        match(pointing(1, 0, 0), "dan", KNOWN)


def test_a_centroid_lies_between_and_has_length_one() -> None:
    middle = centroid([KNOWN["ann"], KNOWN["ben"]])
    assert similarity(middle, middle) == pytest.approx(1)
    assert similarity(middle, KNOWN["ann"]) == pytest.approx(np.sqrt(0.5))
    assert similarity(centroid([np.zeros(3, np.float32)]), middle) == 0


def wave(seed: int, n_samples: int = 8000) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).normal(0, 0.1, n_samples)).float()


def test_loudness_does_not_change_who_speaks() -> None:
    torch.manual_seed(0)
    network = Ecapa(EcapaConfig(n_channels=16, n_pooled=12, n_hidden=4, d_embedding=6))
    quiet, loud, other = network.embed(wave(0)), network.embed(5 * wave(0)), network.embed(wave(1))
    assert quiet.shape == (6,)
    torch.testing.assert_close(quiet, loud, atol=1e-4, rtol=1e-3)
    assert not torch.allclose(quiet, other, atol=1e-3)


def test_frames_are_decibels_above_a_floor() -> None:
    click = torch.zeros(8000)
    click[4000] = 1.0
    levels = decibels(click)
    assert levels.shape == (51, 80)
    assert levels.max() - levels.min() == pytest.approx(80)
    torch.testing.assert_close(
        decibels(10 * wave(0)) - decibels(wave(0)), torch.full((51, 80), 20.0)
    )


def test_filters_rise_to_one_bin_after_the_other() -> None:
    peaks = filters().argmax(dim=1)
    assert filters().shape == (80, 201)
    assert (peaks.diff() >= 0).all()
    assert filters().max() <= 1
    assert filters().min() == 0
