"""Change of rate by a short windowed sinc: what the flow's own view of a recording is made with.

Not as good as soxr in `files`, but what the models were trained on; both are needed.
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor

from nightingale.nn.device import HOST

N_CROSSINGS = 6  # of zero, on either side of the middle
ROLLOFF = 0.99  # of the lower Nyquist frequency


def resample(wave: Tensor, from_hz: int, to_hz: int) -> Tensor:
    """(N,) -> (ceil(N * to / from),)"""
    if from_hz == to_hz:
        return wave
    shared = math.gcd(from_hz, to_hz)
    step, n_phases = from_hz // shared, to_hz // shared
    kernels = sinc_kernels(step, n_phases).to(wave)  # (phases, 1, taps)
    reach = (kernels.shape[-1] - step) // 2
    padded = F.pad(wave, (reach, reach + step))
    out = F.conv1d(padded[None, None], kernels, stride=step)  # (1, phases, N / step)
    return out[0].T.reshape(-1)[: math.ceil(n_phases * wave.shape[0] / step)]


@lru_cache(maxsize=8)
def sinc_kernels(step: int, n_phases: int) -> Tensor:
    """One low-pass kernel per output phase; `step` input samples pass per `n_phases` outputs."""
    cutoff = min(step, n_phases) * ROLLOFF
    reach = math.ceil(N_CROSSINGS * step / cutoff)
    taps = torch.arange(-reach, reach + step, dtype=torch.float64, device=HOST) / step
    phases = torch.arange(n_phases, dtype=torch.float64, device=HOST) / n_phases
    time = (cutoff * (taps - phases[:, None])).clamp(-N_CROSSINGS, N_CROSSINGS)
    window = torch.cos(time * math.pi / N_CROSSINGS / 2) ** 2
    kernels = torch.sinc(time) * window * (cutoff / step)
    return kernels.to(torch.float32)[:, None]
