"""Chance, by name: every random number is a function of (seed, purpose, index) and of nothing else.

A counter-based generator (Philox) makes that possible: token 700 of a request can be drawn without
drawing the 699 before it, on any device, by any thread, after any restart. Only the raw bits of
NumPy's Philox are used: those are promised to stay the same from version to version.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class Purpose(IntEnum):
    """What the numbers are for: streams of one seed that never meet."""

    TOKENS = 1


def exponential(seed: int, purpose: Purpose, index: int, n: int) -> Tensor:
    """`n` draws from Exp(1), all of them above 0."""
    return torch.from_numpy(-np.log(_uniform(seed, purpose, index, n)).astype(np.float32))


def _uniform(seed: int, purpose: Purpose, index: int, n: int) -> NDArray[np.float64]:
    """`n` numbers strictly between 0 and 1, 32 bits each."""
    # The low counter word runs; the index stands above it, so that no two indices overlap.
    bits = np.random.Philox(key=seed | int(purpose) << 64, counter=index << 64)
    raw = bits.random_raw((n + 1) // 2).view(np.uint32)[:n]
    return (raw.astype(np.float64) + 0.5) * 2.0**-32
