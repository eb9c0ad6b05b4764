"""How loud a recording is to the ear: integrated loudness of ITU-R BS.1770, for one channel."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

Wave = NDArray[np.float32]

BLOCK_SECONDS = 0.4
STEP = 0.25  # of a block, from one to the next
SILENCE_LUFS = -70.0  # blocks below this never count
RELATIVE_GATE_LU = 10.0  # nor do those this far below the mean of the rest
OFFSET = -0.691  # makes a 1 kHz sine at full scale -3.01 LUFS


def loudness(wave: Wave, rate_hz: int) -> float:
    """LUFS of the whole wave; minus infinity if nothing in it can be heard."""
    power = _block_power(_weighted(wave, rate_hz), rate_hz)
    power = power[_lufs(power) >= SILENCE_LUFS]
    if not power.size:
        return -math.inf
    gate = _lufs(power.mean()) - RELATIVE_GATE_LU
    return float(_lufs(power[_lufs(power) > gate].mean()))


def at_loudness(wave: Wave, rate_hz: int, target_lufs: float) -> Wave:
    """The same sound at another loudness; silence stays silence."""
    now = loudness(wave, rate_hz)
    if not math.isfinite(now):
        return wave
    return (wave * np.float64(10.0 ** ((target_lufs - now) / 20.0))).astype(np.float32)


def _lufs(power: NDArray[np.float64]) -> NDArray[np.float64]:
    with np.errstate(divide="ignore"):
        return OFFSET + 10.0 * np.log10(power)


def _block_power(wave: Wave, rate_hz: int) -> NDArray[np.float64]:
    """Mean square of blocks that overlap by three quarters; a last one may hang over the end."""
    n_blocks = max(0, round((len(wave) / rate_hz - BLOCK_SECONDS) / (BLOCK_SECONDS * STEP)) + 1)
    squares = wave**2
    steps = [n * STEP for n in range(n_blocks)]
    edges = [(BLOCK_SECONDS * step, BLOCK_SECONDS * (step + 1)) for step in steps]
    sums = [squares[int(start * rate_hz) : int(end * rate_hz)].sum() for start, end in edges]
    return (np.array(sums, np.float32) * (1 / (BLOCK_SECONDS * rate_hz))).astype(np.float64)


def _weighted(wave: Wave, rate_hz: int) -> Wave:
    """What the ear makes of it: a shelf for the head, and less of the lowest tones.

    The filters ring for some milliseconds only, so that a product of spectra with a second of
    zeros behind the wave is the recursion itself. Its results are rounded where upstream's meter
    rounds them: the gain is then the same to the last digit, and so is all that follows.
    """
    n_fft = 2 ** math.ceil(math.log2(len(wave) + rate_hz))
    delay = np.exp(-2j * np.pi * np.arange(n_fft // 2 + 1) / n_fft)
    for above, below in (_high_shelf(rate_hz), _high_pass(rate_hz)):
        response = np.polyval(above[::-1], delay) / np.polyval(below[::-1], delay)
        spectrum = np.fft.rfft(wave.astype(np.float64), n_fft) * response
        wave = np.fft.irfft(spectrum, n_fft)[: len(wave)].astype(np.float32)
    return wave


Coefficients = tuple[tuple[float, float, float], tuple[float, float, float]]  # of z**0, -1, -2


def _high_shelf(rate_hz: int) -> Coefficients:
    """4 dB above 1500 Hz, without a bump."""
    gain = 10 ** (4.0 / 40)
    cos, alpha = _corner(1500.0, math.sqrt(0.5), rate_hz)
    edge = 2 * math.sqrt(gain) * alpha
    up, down = gain + 1, gain - 1
    above = (up + down * cos + edge, -2 * (down + up * cos), up + down * cos - edge)
    below = (up - down * cos + edge, 2 * (down - up * cos), up - down * cos - edge)
    return (gain * above[0], gain * above[1], gain * above[2]), below


def _high_pass(rate_hz: int) -> Coefficients:
    cos, alpha = _corner(38.0, 0.5, rate_hz)
    return ((1 + cos) / 2, -(1 + cos), (1 + cos) / 2), (1 + alpha, -2 * cos, 1 - alpha)


def _corner(hz: float, quality: float, rate_hz: int) -> tuple[float, float]:
    angle = 2 * math.pi * hz / rate_hz
    return math.cos(angle), math.sin(angle) / (2 * quality)
