"""What a recording is like, before it becomes a voice: refused, or used with a word of warning.

`check` refuses what a model cannot compute with, `inspect` also what makes no good voice, unless
its caller insists. Looks at the wave alone; knows nothing of the encoders.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from nightingale.core import SAMPLES_PER_SECOND, Family
from nightingale.errors import AudioError
from nightingale.families import FAMILIES
from nightingale.voice import speech_detection
from nightingale.voice.level import Level

Wave = NDArray[np.float32]

FLOW_SECONDS = 10  # the flow reads the beginning

# The speaker encoder looks through a window of 1.6 s: a shorter clip does not fill even one.
MIN_SECONDS = 2.0
SHORT_SECONDS = 3.0  # below this the voice is a guess
FAINT_PEAK = 1e-3
CLIPPED_LEVEL, CLIPPED_SHARE = 0.99, 1e-3
SILENT_DB, SILENT_SHARE = -40.0, 0.5  # below the loudest frames
NOISY_DB = 20.0  # less than this between speech and pauses
NARROW_DB = -60.0  # less than this above 4 kHz, beside what is below: a telephone's 8 kHz
FRAME = SAMPLES_PER_SECOND // 50


@dataclass(frozen=True, slots=True)
class Report:
    """What was found. Shares are between 0 and 1."""

    seconds: float  # all of it is read for the speaker embedding
    flow_seconds: float  # read for the timbre
    prompt_seconds: float  # read for the speaking style
    clipped_share: float
    silent_share: float
    snr_db: float  # from the pauses to the loudest frames
    warnings: tuple[str, ...]
    level: Level | None = None  # None: kept as it was
    output_gain_db: float = 0.0  # of what the voice speaks

    @property
    def summary(self) -> str:
        """One line for a person."""
        used = (
            f"{self.seconds:.1f} s of recording (timbre from the first {self.flow_seconds:.1f} s, "
            f"speaking style from the first {self.prompt_seconds:.1f} s)"
        )
        if self.level is None:
            return f"{used}, loudness kept"
        return (
            f"{used}, gain {self.level.gain_db:+.1f} dB applied (recording {self.level.lufs:.1f} "
            f"LUFS, target {self.level.target_lufs:.1f}), output gain {self.output_gain_db:+.1f} dB"
        )


def check(wave: Wave, family: Family) -> None:
    """Refuse what no voice can be made of."""
    if wave.ndim != 1 or wave.dtype != np.float32:
        raise AudioError(f"a wave must be (N,) float32, not {wave.shape} {wave.dtype}")
    seconds, least = len(wave) / SAMPLES_PER_SECOND, FAMILIES[family].min_prompt_s
    if seconds <= least:
        raise AudioError(
            f"the recording has {seconds:.1f} s, but {family} needs more than {least:g} s: "
            "record about 10 s"
        )
    if not np.isfinite(wave).all():
        raise AudioError("the recording holds samples that are no numbers (NaN or Inf)")
    if np.abs(wave).max() < FAINT_PEAK:
        raise AudioError("the recording is silent: is the right microphone chosen?")


def inspect(wave: Wave, family: Family, *, force: bool = False) -> Report:
    """(N,) at 24 kHz -> what is used of it, and what is wrong with it.

    Refuses as `check` does, and also what is too short or no speech; the latter two become
    warnings with `force`.
    """
    check(wave, family)
    seconds = len(wave) / SAMPLES_PER_SECOND
    sound = speech_detection.measure(wave)
    doubts = _doubts(seconds, sound)
    if doubts and not force:
        raise AudioError(
            f"{doubts[0]}; take another one, or insist with --force (HTTP: force=true)"
        )
    frames = wave[: len(wave) // FRAME * FRAME].reshape(-1, FRAME).astype(np.float64)
    level = 10 * np.log10(np.maximum((frames**2).mean(axis=1), 1e-10))
    pauses, loudest = np.percentile(level, (10, 95))
    clipped = float((np.abs(wave) >= CLIPPED_LEVEL).mean())
    silent = float((level < loudest + SILENT_DB).mean())
    snr_db = float(loudest - pauses)
    is_short = MIN_SECONDS <= seconds < SHORT_SECONDS
    remarks = (
        (is_short, f"{seconds:.1f} s is short: 10 s make a much more similar voice"),
        (clipped > CLIPPED_SHARE, f"{clipped:.1%} of the samples are clipped: record it less loud"),
        (silent > SILENT_SHARE, f"{silent:.0%} of it is silence: cut the silence out"),
        (
            snr_db < NOISY_DB and not doubts,
            f"there is noise or music {snr_db:.0f} dB below the speech, or no pause",
        ),
        (
            sound.treble_db < NARROW_DB,
            "nothing above 4 kHz, as on a telephone (8 kHz): the voice will sound muffled",
        ),
    )
    return Report(
        seconds=seconds,
        flow_seconds=min(seconds, FLOW_SECONDS),
        prompt_seconds=min(seconds, FAMILIES[family].prompt_s),
        clipped_share=clipped,
        silent_share=silent,
        snr_db=snr_db,
        warnings=(*doubts, *(text for is_so, text in remarks if is_so)),
    )


def _doubts(seconds: float, sound: speech_detection.Evidence) -> list[str]:
    """Why this would make no good voice."""
    doubts = []
    if seconds < MIN_SECONDS:
        doubts.append(
            f"the recording has {seconds:.1f} s, but a voice needs {MIN_SECONDS:g} s or more, "
            "better 10 s"
        )
    if sound.reason is not None:
        doubts.append(f"the recording does not sound like speech: {sound.reason}")
    return doubts
