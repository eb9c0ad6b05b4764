"""Noise by name: every random number is a function of (seed, purpose, index) and of nothing else.

A counter-based generator (Philox) makes that possible: token 700 of a request can be drawn without
drawing the 699 before it, on any device, by any thread, after any restart. Only the raw bits of
NumPy's Philox are used: those are promised to stay the same from version to version.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray


class NoiseStream(IntEnum):
    """What the numbers are for: streams of one seed that never meet."""

    TOKENS = 1  # index: speech token
    PROMPT_FRAMES = 2  # index: mel frame of the voice's recording
    FRAMES = 3  # index: mel frame of the utterance
    SOURCE_PHASE = 4  # index: 0
    SOURCE_NOISE = 5  # index: mel frame of the utterance
    PARTS = 6  # index: part of a long text


def exponential(seed: int, purpose: NoiseStream, index: int, n: int) -> NDArray[np.float32]:
    """`n` draws from Exp(1), all of them above 0."""
    return -np.log(_uniform(seed, purpose, index, n)).astype(np.float32)


def uniform(seed: int, purpose: NoiseStream, index: int, n: int) -> NDArray[np.float32]:
    """`n` draws between 0 and 1."""
    return _uniform(seed, purpose, index, n).astype(np.float32)


def normal(
    seed: int, purpose: NoiseStream, first: int, n_rows: int, n_columns: int
) -> NDArray[np.float32]:
    """(n_rows, n_columns) draws from N(0, 1); each row is the draw of its own index."""
    half = (n_columns + 1) // 2
    rows = [_uniform(seed, purpose, first + row, 2 * half) for row in range(n_rows)]
    u = np.stack(rows) if rows else np.empty((0, 2 * half))
    radius = np.sqrt(-2 * np.log(u[:, :half]))  # Box and Muller: two from two
    angle = 2 * np.pi * u[:, half:]
    both = np.concatenate((radius * np.cos(angle), radius * np.sin(angle)), axis=1)
    return both[:, :n_columns].astype(np.float32)


def derive_seed(seed: int, part: int) -> int:
    """The seed of one part of a long text; the first has that of the request."""
    if part == 0:
        return seed
    return int(
        np.random.Philox(key=seed | int(NoiseStream.PARTS) << 64, counter=part << 64).random_raw()
        >> 1
    )


def _uniform(seed: int, purpose: NoiseStream, index: int, n: int) -> NDArray[np.float64]:
    """`n` numbers strictly between 0 and 1, 32 bits each."""
    # The low counter word runs; the index stands above it, so that no two indices overlap.
    bits = np.random.Philox(key=seed | int(purpose) << 64, counter=index << 64)
    raw = bits.random_raw((n + 1) // 2).view(np.uint32)[:n]
    return (raw.astype(np.float64) + 0.5) * 2.0**-32
