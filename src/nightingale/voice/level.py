"""How loud a voice is, so that all voices of a model are alike.

Two gains. The recording is brought to the level of the recording behind the model's own voice:
upstream does so for Turbo and Nano, at a fixed level, and takes recordings as they are otherwise.
How loud a voice speaks then still depends on the speaker, with Fledgling by 7 dB. So a voice also
carries a gain for its samples, found by speaking `SAMPLES` with it and with the model's own voice:
two sentences, since with one alone a voice may be 0.5 dB louder than it is on the average.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nightingale.audio.loudness import loudness
from nightingale.core import SAMPLES_PER_SECOND, Family
from nightingale.errors import OptionError
from nightingale.families import FAMILIES

Wave = NDArray[np.float32]

SAMPLES = (
    "The quick brown fox jumps over the lazy dog, and nobody minds.",
    "We were away a year ago, when the rain fell on every roof.",
)
MAX_SAMPLE_TOKENS = 100  # four seconds of each
MAX_GAIN_DB = 30.0  # of a recording; beyond it there is more noise than voice
MAX_OUTPUT_GAIN_DB = 12.0
MAX_PEAK = 0.9  # that a voice's gain may lead to

_MEL_LUFS = -10.8  # from the mean power of mel frames to the loudness of their wave, within 1 dB


@dataclass(frozen=True, slots=True)
class Level:
    """Of a recording, and what was done about it."""

    lufs: float
    target_lufs: float
    gain_db: float


def normalize(wave: Wave, family: Family, own_mel: NDArray[np.float32]) -> tuple[Wave, Level]:
    """(N,) at 24 kHz, at the level of `own_mel`: log-mel frames (M, 80) of the model's own voice.

    For families with a level of their own the wave stays as it is: `clone` sees to it.
    """
    now, target = loudness(wave, SAMPLES_PER_SECOND), FAMILIES[family].prompt_lufs
    if target is not None:
        return wave, Level(now, target, _gain_db(now, target, math.inf))
    target = prompt_loudness(own_mel)
    gain_db = _gain_db(now, target, MAX_GAIN_DB)
    return amplified(wave, gain_db), Level(now, target, gain_db)


def check_kept(family: Family) -> None:
    """Refuse to keep the loudness of a recording where the model does not."""
    lufs = FAMILIES[family].prompt_lufs
    if lufs is not None:
        raise OptionError(
            f"{family} brings every recording to {lufs:g} LUFS: its loudness cannot "
            "be kept; leave out keep_loudness"
        )


def prompt_loudness(mel: NDArray[np.float32]) -> float:
    """LUFS, about, of the recording behind log-mel frames (M, 80)."""
    return 10 * math.log10(float(np.exp(2 * mel.astype(np.float64)).mean())) + _MEL_LUFS


def output_gain_db(spoken: Wave, target_lufs: float) -> float:
    """What gives that loudness to a voice that speaks like this; never so much as to clip."""
    now = loudness(spoken, SAMPLES_PER_SECOND)
    room_db = 20 * math.log10(MAX_PEAK / float(np.abs(spoken).max(initial=1e-6)))
    most_db = max(0.0, math.floor(10 * room_db) / 10)
    return min(_gain_db(now, target_lufs, MAX_OUTPUT_GAIN_DB), most_db)


def amplified(samples: Wave, gain_db: float) -> Wave:
    """The same sound, louder or less loud; at 0 dB the very same samples."""
    return samples * np.float32(10.0 ** (gain_db / 20)) if gain_db else samples


def _gain_db(now_lufs: float, target_lufs: float, most_db: float) -> float:
    """To a tenth of a dB; silence stays silence."""
    if not math.isfinite(now_lufs) or not math.isfinite(target_lufs):
        return 0.0
    return round(min(max(target_lufs - now_lufs, -most_db), most_db), 1)
