"""What a recording is like, before it becomes a voice: refused, or used with a word of warning.

Says how much of it is used for what. Looks at the wave alone; knows nothing of the encoders.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nightingale.core import SAMPLES_PER_SECOND, Family
from nightingale.errors import AudioError

Wave = NDArray[np.float32]

FLOW_SECONDS = 10  # the flow reads the beginning
# What T3 hears of a recording, and the least that will do.
PROMPT_SECONDS: dict[Family, int] = {
    "english": 6, "multilingual": 6, "turbo": 15, "nano": 15, "fledgling": 6,
}  # fmt: skip
LEAST_SECONDS: dict[Family, float] = {
    "english": 1, "multilingual": 1, "turbo": 5, "nano": 5, "fledgling": 1,
}  # fmt: skip

SHORT_SECONDS = 3.0  # below this the voice is a guess
FAINT_PEAK = 1e-3
CLIPPED_LEVEL, CLIPPED_SHARE = 0.99, 1e-3
SILENT_DB, SILENT_SHARE = -40.0, 0.5  # below the loudest frames
NOISY_DB = 20.0  # less than this between speech and pauses
FRAME = SAMPLES_PER_SECOND // 50


@dataclass(frozen=True, slots=True)
class Report:
    """What was found. Shares are between 0 and 1."""

    seconds: float  # all of it says who speaks
    flow_seconds: float  # gives the sound
    prompt_seconds: float  # gives the manner of speaking
    clipped_share: float
    silent_share: float
    snr_db: float  # from the pauses to the loudest frames
    warnings: tuple[str, ...]

    @property
    def summary(self) -> str:
        """One line for a person."""
        return (
            f"{self.seconds:.1f} s of recording: {self.flow_seconds:.1f} s for the sound, "
            f"{self.prompt_seconds:.1f} s for the manner of speaking, all for who speaks"
        )


def check(wave: Wave, family: Family) -> None:
    """Refuse what no voice can be made of."""
    if wave.ndim != 1 or wave.dtype != np.float32:
        raise AudioError(f"a wave must be (N,) float32, not {wave.shape} {wave.dtype}")
    seconds, least = len(wave) / SAMPLES_PER_SECOND, LEAST_SECONDS[family]
    if seconds <= least:
        raise AudioError(
            f"the recording has {seconds:.1f} s, but {family} needs more than {least:g} s: "
            "record about 10 s"
        )
    if not np.isfinite(wave).all():
        raise AudioError("the recording holds samples that are no numbers (NaN or Inf)")
    if np.abs(wave).max() < FAINT_PEAK:
        raise AudioError("the recording is silent: is the right microphone chosen?")


def examine(wave: Wave, family: Family) -> Report:
    """(N,) at 24 kHz -> what is used for what, and what is wrong; refuses as `check` does."""
    check(wave, family)
    seconds = len(wave) / SAMPLES_PER_SECOND
    frames = wave[: len(wave) // FRAME * FRAME].reshape(-1, FRAME).astype(np.float64)
    level = 10 * np.log10(np.maximum((frames**2).mean(axis=1), 1e-10))
    pauses, loudest = np.percentile(level, (10, 95))
    clipped = float((np.abs(wave) >= CLIPPED_LEVEL).mean())
    silent = float((level < loudest + SILENT_DB).mean())
    snr_db = float(loudest - pauses)
    told = (
        (seconds < SHORT_SECONDS, f"{seconds:.1f} s is short: 10 s make a much better likeness"),
        (clipped > CLIPPED_SHARE, f"{clipped:.1%} of the samples are clipped: record it less loud"),
        (silent > SILENT_SHARE, f"{silent:.0%} of it is silence: cut the silence out"),
        (
            snr_db < NOISY_DB,
            f"there is noise or music {snr_db:.0f} dB below the speech, or no pause",
        ),
    )
    return Report(
        seconds=seconds,
        flow_seconds=min(seconds, FLOW_SECONDS),
        prompt_seconds=min(seconds, PROMPT_SECONDS[family]),
        clipped_share=clipped,
        silent_share=silent,
        snr_db=snr_db,
        warnings=tuple(text for is_so, text in told if is_so),
    )
