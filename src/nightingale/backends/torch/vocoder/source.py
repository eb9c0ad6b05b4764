"""The excitation of the voice: sines at the pitch and its overtones where it is voiced, noise else;
or pulses and noise apart, for a filter that mixes them.

A phase never forgets, so it is state: where each harmonic stands is handed in and handed back.
Phases are whole numbers of 2 ** -48 turns. Sums of those are exact, in any order and cut anywhere,
so a source made in pieces is the source made at once, to the bit. Knows nothing of mel frames.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from nightingale.core import SAMPLES_PER_SECOND
from nightingale.noise import NoiseStream, normal, uniform

TURN = 2**48  # finer than a float32 step of any pitch above 0.002 Hz
VOICED_HZ = 10.0
SINE_LEVEL = 0.1
VOICED_NOISE = 0.003
UNVOICED_NOISE = SINE_LEVEL / 3
PULSE_BAND_HZ = 11_000  # pulses have overtones up to here


@dataclass(frozen=True, slots=True, eq=False)
class SourceState:
    """Where an utterance's source stands: behind frame number `frame - 1`."""

    phase: Tensor  # (H,) int64, of TURN
    frame: int
    f0: float = 0.0  # at the end of that frame

    @classmethod
    def at(cls, turns: Tensor) -> SourceState:
        """The beginning, with the harmonics at these fractions of a turn, (H,)."""
        return cls((turns.double() * TURN).round().long() % TURN, 0)

    @classmethod
    def start(cls, seed: int, n_harmonics: int) -> SourceState:
        """The beginning of a request: overtones anywhere, the fundamental at zero."""
        turns = torch.from_numpy(uniform(seed, NoiseStream.SOURCE_PHASE, 0, n_harmonics))
        turns[0] = 0
        return cls.at(turns)


def draw_noise(seed: int, first: int, n_frames: int, n_harmonics: int, n_samples: int) -> Tensor:
    """(M, H, S): noise for `n_frames` frames from the `first` on, of `n_samples` each."""
    drawn = normal(seed, NoiseStream.SOURCE_NOISE, first, n_frames, n_harmonics * n_samples)
    return torch.from_numpy(drawn).view(n_frames, n_harmonics, n_samples)


class Source(nn.Module):
    """Pitch -> excitation; the only thing learned is how the harmonics are mixed."""

    def __init__(self, n_harmonics: int) -> None:
        super().__init__()
        self.l_linear = nn.Linear(n_harmonics, 1)

    def forward(self, f0: Tensor, state: SourceState, noise: Tensor) -> tuple[Tensor, SourceState]:
        """(M,) in Hz and noise (M, H, S) -> (M * S,), and the state behind them."""
        n_frames, n_harmonics, n_samples = noise.shape
        phase, last = advance(f0, state.phase.to(f0.device), n_samples)
        sines = SINE_LEVEL * torch.sin(phase.to(f0.dtype) * (2 * math.pi / TURN))  # (M, H, S)
        voiced = (f0 > VOICED_HZ).to(f0.dtype)[:, None, None]
        level = voiced * VOICED_NOISE + (1 - voiced) * UNVOICED_NOISE
        waves = sines * voiced + level * noise
        # Not a matrix product: its order of summation may depend on the number of frames.
        mixed = (waves * self.l_linear.weight.view(n_harmonics, 1)).sum(1) + self.l_linear.bias
        return mixed.tanh().flatten(), SourceState(last, state.frame + n_frames)


class Pulses(nn.Module):
    """Pitch at the end of each frame -> band-limited pulses and white noise. Nothing is learned."""

    def forward(self, f0: Tensor, state: SourceState, noise: Tensor) -> tuple[Tensor, SourceState]:
        """(M,) in Hz and noise (M, 1, S) -> (M * S, 2), and the state behind them."""
        n_samples = noise.shape[2]
        before = torch.cat((f0.new_tensor([state.f0]), f0))[:-1]
        before = torch.where(before > VOICED_HZ, before, f0)  # a voice begins at its pitch
        phase, last = glide(before, f0, state.phase.to(f0.device)[0], n_samples)
        n_harmonics = (PULSE_BAND_HZ / torch.maximum(before, f0).clamp(min=VOICED_HZ)).floor()
        voiced = (f0 > VOICED_HZ).to(f0.dtype)[:, None]
        pulses = voiced * dirichlet(phase, n_harmonics[:, None])  # (M, S)
        made = torch.stack((pulses, noise[:, 0]), dim=-1).flatten(0, 1)
        end = float(f0[-1]) if len(f0) else state.f0
        return made, SourceState(last[None], state.frame + len(f0), end)


def dirichlet(phase: Tensor, n: Tensor) -> Tensor:
    """The sum of n cosines: of the phase, of TURN, and its multiples."""
    centered = (phase + TURN // 2) % TURN - TURN // 2
    half = centered.to(n.dtype) * (math.pi / TURN)
    below = 2 * torch.sin(half)
    is_peak = half.abs() < 1e-4
    return torch.where(is_peak, n, torch.sin((2 * n + 1) * half) / (below + is_peak) - 0.5)


def glide(before: Tensor, f0: Tensor, phase: Tensor, n_samples: int) -> tuple[Tensor, Tensor]:
    """Phases of every sample of every frame, (M, S), and of the last one: the pitch glides from
    that before a frame to that at its end."""
    step = (before / SAMPLES_PER_SECOND * TURN).round().long()  # a sample
    slope = ((f0 - before) / (SAMPLES_PER_SECOND * n_samples) * TURN).round().long()
    count = torch.arange(1, n_samples + 1, device=f0.device)
    within = step[:, None] * count + slope[:, None] * (count * (count + 1) // 2)  # (M, S)
    ends = (phase + (within[:, -1] % TURN).cumsum(0)) % TURN
    starts = torch.cat((phase[None], ends))[:-1]
    return (starts[:, None] + within) % TURN, (ends[-1] if len(f0) else phase)


def advance(f0: Tensor, phase: Tensor, n_samples: int) -> tuple[Tensor, Tensor]:
    """Phases of every sample of every frame, (M, H, S), and of the last one, (H,)."""
    harmonic = torch.arange(1, len(phase) + 1, device=f0.device)
    step = f0[:, None] * harmonic / SAMPLES_PER_SECOND  # (M, H) turns a sample, rounded as f0 is
    step = (step * TURN).round().long() % TURN
    ends = (phase + (step * n_samples % TURN).cumsum(0)) % TURN
    starts = torch.cat((phase[None], ends))[:-1]
    count = torch.arange(1, n_samples + 1, device=f0.device)
    within = (starts[..., None] + step[..., None] * count) % TURN
    return within, (ends[-1] if len(f0) else phase)
