"""G.711, the sound of telephones: 16-bit samples as eight bits, by mu-law or by A-law.

Both keep a sign, a segment (the power of two) and four bits within it; quiet sounds get the finer
steps. A sample counts by its magnitude, so that x and -x differ in nothing but the sign bit.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

_BIAS = 33  # makes every segment of mu-law begin at a power of two


def to_mulaw(samples: NDArray[np.int16]) -> NDArray[np.uint8]:
    """14 bits of magnitude and sign -> 8; all bits are sent inverted."""
    magnitude = np.minimum(_magnitude(samples) >> 2, 8191 - _BIAS) + _BIAS
    segment = _top_bit(magnitude) - 5
    step = (magnitude >> (segment + 1)) & 15
    sign = np.where(samples < 0, 0x80, 0)
    return (~(sign | segment << 4 | step) & 0xFF).astype(np.uint8)


def to_alaw(samples: NDArray[np.int16]) -> NDArray[np.uint8]:
    """13 bits of magnitude and sign -> 8; every second bit is sent inverted."""
    magnitude = np.minimum(_magnitude(samples) >> 4, 2047)
    segment = np.maximum(_top_bit(magnitude) - 3, 0)  # 0 and 1 have the same step
    step = (magnitude >> np.maximum(segment - 1, 0)) & 15
    sign = np.where(samples < 0, 0, 0x80)
    return ((sign | segment << 4 | step) ^ 0x55).astype(np.uint8)


def _magnitude(samples: NDArray[np.int16]) -> NDArray[np.int32]:
    return np.abs(samples.astype(np.int32))  # wider first: -32768 has no positive twin


def _top_bit(values: NDArray[np.int32]) -> NDArray[np.int32]:
    """The place of the highest bit; -1 where there is none."""
    return np.frexp(values.astype(np.float64))[1].astype(np.int32) - 1
