"""The excitation: sines of the right pitch and phase, noise of the right level, nothing hidden."""

from __future__ import annotations

import math

import pytest
import torch

from nightingale.backends.torch.vocoder.source import TURN, Source, SourceState, advance, draw_noise

N = 480


def hum(f0: list[float], harmonic: int, turns: float = 0.0) -> torch.Tensor:
    """One harmonic alone, without noise and before tanh, of a source in float64."""
    source = Source(9).double().requires_grad_(False)
    source.l_linear.weight.copy_(torch.eye(9)[harmonic - 1 : harmonic])
    source.l_linear.bias.zero_()
    phases = torch.zeros(9)
    phases[harmonic - 1] = turns
    pitch = torch.tensor(f0, dtype=torch.float64)
    made, _ = source(pitch, SourceState.at(phases), torch.zeros(len(f0), 9, N).double())
    return torch.atanh(made)


@pytest.mark.parametrize("harmonic", [1, 2, 9])
@pytest.mark.parametrize("turns", [0.0, 0.375])
def test_a_harmonic_is_a_sine_at_its_multiple_of_the_pitch(harmonic: int, turns: float) -> None:
    f0 = [100.0, 237.3, 3.0, 399.9]  # the third is unvoiced, and its phase runs on all the same
    pitch = torch.tensor(f0, dtype=torch.float64).repeat_interleave(N)
    phase = (pitch * harmonic / 24_000).cumsum(0) + turns
    wanted = 0.1 * torch.sin(2 * math.pi * phase) * (pitch > 10)
    assert torch.allclose(hum(f0, harmonic, turns), wanted, atol=1e-10)


def test_the_phase_keeps_its_precision_for_an_hour() -> None:
    """One harmonic of a steady pitch, against whole-number arithmetic without any rounding."""
    n_frames = 50 * 3600
    f0 = torch.full((3,), 173.25)
    step = int(float(torch.tensor(173.25) * 9 / 24_000) * TURN)
    begun = SourceState.at(torch.zeros(9)).phase
    begun[8] = step * N * (n_frames - 3) % TURN
    _, last = advance(f0, begun, N)
    assert int(last[8]) == step * N * n_frames % TURN


@pytest.mark.parametrize(
    ("f0", "level"), [(200.0, 0.003), (10.1, 0.003), (10.0, 0.1 / 3), (0.0, 0.1 / 3)]
)
def test_noise_is_faint_under_a_voice_and_loud_without(f0: float, level: float) -> None:
    source = Source(9).double().requires_grad_(False)
    source.l_linear.weight.fill_(1)
    source.l_linear.bias.zero_()
    pitch, state = torch.tensor([f0], dtype=torch.float64), SourceState.at(torch.zeros(9))
    noise = torch.randn(1, 9, N, generator=torch.Generator().manual_seed(1)).double()
    noisy, _ = source(pitch, state, noise)
    plain, _ = source(pitch, state, torch.zeros_like(noise))
    added = torch.atanh(noisy) - torch.atanh(plain)
    assert torch.allclose(added, level * noise.sum(1).flatten(), atol=1e-12)


def test_the_mix_is_bent_by_tanh_and_has_a_bias() -> None:
    source = Source(9).requires_grad_(False)
    source.l_linear.weight.zero_()
    source.l_linear.bias.fill_(2.0)
    made, state = source(torch.tensor([100.0]), SourceState.start(0, 9), torch.zeros(1, 9, N))
    assert torch.allclose(made, torch.tensor(2.0).tanh().expand(N))
    assert state.frame == 1


def test_a_request_begins_at_phases_of_its_seed_with_the_fundamental_at_zero() -> None:
    states = [SourceState.start(seed, 9) for seed in (0, 0, 1)]
    assert all(state.frame == 0 and state.phase[0] == 0 for state in states)
    assert torch.equal(states[0].phase, states[1].phase)
    assert not torch.equal(states[0].phase, states[2].phase)
    assert len(set(states[0].phase.tolist())) == 9
    assert 0 <= int(states[0].phase.min()) <= int(states[0].phase.max()) < TURN


def test_phases_may_be_given_as_negative_turns() -> None:
    assert torch.equal(SourceState.at(torch.tensor([-0.25])).phase, torch.tensor([3 * TURN // 4]))


def test_noise_belongs_to_its_frame() -> None:
    whole = draw_noise(5, 0, 6, 9, N)
    assert whole.shape == (6, 9, N)
    assert torch.equal(draw_noise(5, 2, 3, 9, N), whole[2:5])
    assert not torch.equal(draw_noise(6, 0, 6, 9, N), whole)
    assert draw_noise(5, 3, 0, 9, N).shape == (0, 9, N)


def test_no_frames_make_no_samples_and_leave_the_state() -> None:
    state = SourceState.start(3, 9)
    made, after = Source(9)(torch.empty(0), state, torch.empty(0, 9, N))
    assert made.shape == (0,)
    assert torch.equal(after.phase, state.phase)
