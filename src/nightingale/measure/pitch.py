"""At which pitch is it spoken? YIN: a recording -> Hz of each 10 ms, without its text.

The period is the first lag at which a piece of sound is nearly itself again (de Cheveigné and
Kawahara, 2002). Good enough to tell a pitch that is off by a percent; knows nothing of words.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from nightingale.audio.files import Wave

STEP_S = 0.01
LOWEST_HZ, HIGHEST_HZ = 60.0, 600.0  # a high voice, twice as fast
PERIODIC = 0.15  # how much a voiced piece may differ from itself, a period later
QUIET = 0.05  # of the loudest piece: what is below has no pitch
MIN_FRAMES = 10  # that both clips have a pitch in, for a ratio


def pitch_contour(samples: Wave, rate_hz: int) -> NDArray[np.float64]:
    """(N,) -> Hz of each step; NaN where there is none."""
    longest, shortest = int(rate_hz / LOWEST_HZ), int(rate_hz / HIGHEST_HZ)
    window, step = 2 * longest, round(STEP_S * rate_hz)
    padded = np.pad(samples.astype(np.float64), (window // 2, window + longest))
    pieces = np.lib.stride_tricks.sliding_window_view(padded, window + longest)[::step]
    pieces = pieces[: len(samples) // step]
    if not len(pieces):
        return np.empty(0)
    differences = _differences(pieces, window, longest)
    means = np.cumsum(differences, axis=1) / np.arange(1, longest + 1)
    scores = differences / np.maximum(means, 1e-12)  # 1 on average, near 0 at the period
    loudness = np.sqrt((pieces[:, :window] ** 2).mean(axis=1))
    contour = np.full(len(pieces), np.nan)
    for number in np.flatnonzero(loudness > QUIET * loudness.max()):
        lag = _period(scores[number], shortest)
        if lag is not None:
            contour[number] = rate_hz / lag
    return contour


def pitch_ratio(changed: Wave, original: Wave, rate_hz: int, speed: float = 1.0) -> float | None:
    """How much higher the pitch is in a clip that says the same at another speed: the median over
    all moments that are voiced in both. None: there are too few."""
    ours, theirs = pitch_contour(changed, rate_hz), pitch_contour(original, rate_hz)
    places = np.round(np.arange(len(ours)) * speed).astype(int)
    inside = places < len(theirs)
    ratios = ours[inside] / theirs[places[inside]]
    ratios = ratios[np.isfinite(ratios)]
    return float(np.median(ratios)) if len(ratios) >= MIN_FRAMES else None


def _differences(pieces: NDArray[np.float64], window: int, longest: int) -> NDArray[np.float64]:
    """(F, window + longest) -> (F, longest): squares of what changes after 1, 2, ... samples."""
    n_fft = 1 << (2 * window + longest).bit_length()
    spectra = np.fft.rfft(pieces, n_fft)
    heads = np.fft.rfft(pieces[:, :window], n_fft)
    products = np.fft.irfft(spectra * heads.conj(), n_fft)[:, 1 : longest + 1]
    squares = np.cumsum(np.pad(pieces**2, ((0, 0), (1, 0))), axis=1)
    energies = squares[:, window:] - squares[:, : longest + 1]
    return np.maximum(0.0, energies[:, :1] + energies[:, 1:] - 2 * products)


def _period(scores: NDArray[np.float64], shortest: int) -> float | None:
    """The first lag that is good enough, to a fraction of a sample; scores begin with lag 1."""
    good = np.flatnonzero(scores[shortest - 1 :] < PERIODIC)
    if not len(good):
        return None
    at = int(good[0]) + shortest - 1
    while at + 1 < len(scores) and scores[at + 1] < scores[at]:
        at += 1
    if not 0 < at < len(scores) - 1:
        return None
    before, here, after = scores[at - 1 : at + 2]
    bend = before - 2 * here + after
    return at + 1 + (0.5 * (before - after) / bend if bend > 0 else 0.0)
