"""What the pitch predictor learns from: harmonics at a pitch, bent voices, pieces of utterances."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from nightingale.core import SAMPLES_PER_FRAME, SAMPLES_PER_SECOND
from training.pitch import N_FRAMES, SILENT, Pieces, Rendering, bend, harmonics, loss, pitch_of
from training.recite import Description


def describe(f0: list[float]) -> Description:
    level = np.zeros((601, len(f0)), np.float32)
    level[100] = 5.0
    return Description(level, level, level, level, level, np.array(f0, np.float32))


def test_harmonics_have_the_period_of_the_pitch_and_stop_where_it_is_unvoiced() -> None:
    f0 = torch.tensor([240.0] * 10 + [0.0] * 2)
    wave = harmonics(f0, np.random.default_rng(0))
    period, voiced = SAMPLES_PER_SECOND // 240, wave[: 10 * SAMPLES_PER_FRAME]
    np.testing.assert_allclose(voiced[period:], voiced[:-period], atol=2e-3)
    assert abs(voiced[period // 2 :] - voiced[: -(period // 2)]).max() > 1
    assert not wave[10 * SAMPLES_PER_FRAME :].any()
    spectrum = abs(np.fft.rfft(voiced))
    hertz = np.fft.rfftfreq(len(voiced), 1 / SAMPLES_PER_SECOND)
    assert spectrum[hertz > 11_050].max() < spectrum.max() / 100


def test_a_bent_voice_has_another_pitch_and_other_formants() -> None:
    bent = bend(describe([200.0, 0.0]), 0.5, 0.8)
    assert bent.f0.tolist() == [100.0, 0.0]
    assert np.argmax(bent.sines[:, 0]) == 80
    assert bent.sines[590, 0] == SILENT  # the teacher says nothing of what lies above its spectrum
    assert np.argmax(bend(describe([200.0]), 1.0, 1.1).sines[:, 0]) == 110


def test_pitch_is_read_at_our_frames_and_only_where_the_teacher_is_voiced() -> None:
    f0 = pitch_of(describe([0.0] * 16 + [150.0] * 16))
    assert len(f0) == 20
    assert f0[:9].tolist() == [0.0] * 9
    assert f0[11:].tolist() == [150.0] * 9


def test_share_is_that_of_the_power() -> None:
    made = Rendering(np.full(960, 0.3, np.float32), np.repeat([0.1, 0.9], 480).astype(np.float32))
    assert made.share.tolist() == pytest.approx([0.9, 0.1])


def test_pieces_lie_within_an_utterance_and_held_out_ones_apart(tmp_path: Path) -> None:
    n_frames = np.array([60] * 40 + [N_FRAMES - 1])
    number = np.repeat(np.arange(len(n_frames)), n_frames).astype(np.float32)
    mel = np.repeat(number[:, None], 80, 1).astype(np.float16)
    np.savez(tmp_path / "pitch.npz", mel=mel, f0=number, n_frames=n_frames)
    seen = []
    for held_out in (False, True):
        found, f0 = Pieces(tmp_path / "pitch.npz", held_out=held_out).draw(200, 0)
        assert found.shape == (200, 80, N_FRAMES)
        assert (f0 == f0[:, :1]).all()  # of one utterance
        assert torch.equal(found[:, 0], f0)
        seen.append(set(f0[:, 0].tolist()))
    assert seen[1] == {0.0, 20.0}
    assert len(seen[0]) == 38
    assert 40.0 not in seen[0]


class Constant(nn.Module):
    def __init__(self, f0: float) -> None:
        super().__init__()
        self.f0 = f0

    def forward(self, mel: Tensor) -> Tensor:
        return torch.full((len(mel), mel.shape[2]), self.f0)


def test_a_voiced_frame_that_is_missed_costs_more_than_a_wrong_pitch() -> None:
    mel, pitch = torch.zeros(1, 80, N_FRAMES), torch.full((1, N_FRAMES), 200.0)
    assert float(loss(Constant(200.0), mel, pitch)["loss"]) == 0
    assert float(loss(Constant(190.0), mel, pitch)["loss"]) == pytest.approx(1.0)
    assert float(loss(Constant(0.0), mel, pitch)["loss"]) == pytest.approx(20.0)
