"""Can seams be heard? Where windows meet, against the same places under a grid that has none there.

Tokens are made once and rendered on two grids. At each place where one of them has a seam and the
other has not, the sound is asked two questions: how badly the next sample follows from those before
it, and how much the spectrum changes. If seams are like other places, the answers are alike.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain, repeat, takewhile

import numpy as np
from numpy.typing import NDArray

from nightingale.backends.base import WindowJob
from nightingale.core import SAMPLES_PER_TOKEN, Plan
from nightingale.pipeline import Nightingale
from nightingale.windowing import token_windows

Sound = NDArray[np.float32]
Values = NDArray[np.float64]

SHIFT = 3  # tokens between the seams of the two grids, at least
MEASURES = ("sample", "spectrum")
SPAN = 480  # samples on either side: a frame
FAULTS = ("none", "sample", "frame", "noise")


@dataclass(slots=True)
class Answers:
    """What was measured at seams, and at the same places without one."""

    seams: dict[str, list[float]] = field(default_factory=lambda: {m: [] for m in MEASURES})
    others: dict[str, list[float]] = field(default_factory=lambda: {m: [] for m in MEASURES})

    @property
    def n_seams(self) -> int:
        return len(self.seams["sample"])

    def p_values(self) -> dict[str, float]:
        return {m: rank_test(self.seams[m], self.others[m]) for m in MEASURES}


class Speaker:
    """Speaks each text once, and renders its tokens once for each grid and seed."""

    def __init__(self, tts: Nightingale, texts: Sequence[str]) -> None:
        self._tts, self.texts, self.plan = tts, texts, tts.components.plan
        grid = self.plan.window_sizes
        self.grids = (grid, (grid[0] + SHIFT, *grid[1:]))
        self._tokens: dict[int, tuple[int, ...]] = {}
        self._sounds: dict[tuple[int, int, int], Sound] = {}

    def tokens(self, number: int) -> tuple[int, ...]:
        if number not in self._tokens:
            speech = self._tts.stream(self.texts[number], seed=number)
            for _ in speech:
                pass
            self._tokens[number] = speech.tokens
        return self._tokens[number]

    def sounds(self, number: int, seed: int) -> list[Sound]:
        """Of one text, on both grids."""
        for at, grid in enumerate(self.grids):
            if (number, seed, at) not in self._sounds:
                sound = render(self._tts, self.tokens(number), grid, seed)
                self._sounds[number, seed, at] = sound
        return [self._sounds[number, seed, at] for at in range(len(self.grids))]


def examine(speaker: Speaker, fault: str = "none", n_seams: float = math.inf) -> Answers:
    """Speak texts until there were so many seams; `fault` is planted at each of them."""
    answers = Answers()
    for number in range(len(speaker.texts)):
        if answers.n_seams >= n_seams:
            break
        sounds, n_tokens = speaker.sounds(number, number), len(speaker.tokens(number))
        places = [seams(grid, n_tokens, speaker.plan) for grid in speaker.grids]
        other_sounds = speaker.sounds(number, number + 1000) if fault == "noise" else []
        for mine in (0, 1):
            other = 1 - mine
            for at in places[mine]:
                if min(abs(at - there) for there in places[other]) < SHIFT * SAMPLES_PER_TOKEN // 2:
                    continue
                sound = spoil(sounds[mine], at, fault, other_sounds[mine] if other_sounds else None)
                for which, heard in ((answers.seams, sound), (answers.others, sounds[other])):
                    which["sample"].append(roughness(heard, at))
                    which["spectrum"].append(change(heard, at))
    return answers


def render(tts: Nightingale, tokens: Sequence[int], grid: tuple[int, ...], seed: int) -> Sound:
    """Tokens to sound, without a watermark."""
    decoder = tts.components.loaded.wave_decoder
    state, parts = decoder.start(tts.components.voice.flow, seed), []
    for window in filter(None, token_windows(tokens, grid)):
        (decoded,) = decoder.decode([WindowJob(window, state)])
        state = decoded.state
        parts.append(decoded.samples)
    return np.concatenate(parts)


def seams(grid: tuple[int, ...], n_tokens: int, plan: Plan) -> list[int]:
    """Samples where windows of the flow meet, and where the vocoder's pieces do."""
    ends = accumulate(chain(grid, repeat(grid[-1])))
    inner = [end * SAMPLES_PER_TOKEN for end in takewhile(lambda end: end + 3 < n_tokens, ends)]
    return sorted((*inner, *(end - plan.vocoder_lookahead * SPAN for end in inner)))


def spoil(sound: Sound, at: int, fault: str, other_sounds: Sound | None) -> Sound:
    """The same sound with a fault at one place: a sample or a frame is missing, or everything
    behind it was made with another seed."""
    if fault == "sample":
        return np.delete(sound, at)
    if fault == "frame":
        return np.delete(sound, slice(at, at + SPAN))
    return sound if other_sounds is None else np.concatenate((sound[:at], other_sounds[at:]))


def roughness(sound: Sound, at: int) -> float:
    """How badly the sample at a place follows from those before it, beside its neighbourhood."""
    near = sound[at - SPAN : at + SPAN].astype(np.float64)
    errors = np.abs(np.diff(near, 3))
    here = errors[SPAN - 3 : SPAN].max()  # all that have a sample of either side
    return float(here / (np.median(errors) + 1e-7))


def change(sound: Sound, at: int) -> float:
    """How much the spectrum changes there, in dB."""
    before, behind = (
        np.log10(np.abs(np.fft.rfft(part * np.hanning(SPAN))) + 1e-4)
        for part in (sound[at - SPAN : at], sound[at : at + SPAN])
    )
    return float(20 * np.abs(before - behind).mean())


def rank_test(a: Sequence[float], b: Sequence[float]) -> float:
    """Mann and Whitney's: how probable it is that two sets as these come from one source."""
    values = np.concatenate((np.asarray(a), np.asarray(b)))
    ranks = np.empty(len(values))
    ranks[np.argsort(values, kind="stable")] = np.arange(1, len(values) + 1)
    n, m = len(a), len(b)
    u = ranks[:n].sum() - n * (n + 1) / 2
    z = (u - n * m / 2) / math.sqrt(n * m * (n + m + 1) / 12)
    return math.erfc(abs(z) / math.sqrt(2))
