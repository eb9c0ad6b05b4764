"""A finished piece of speech: hear it, keep it, look at it."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from nightingale.audio.encode import encode_whole, write
from nightingale.audio.mel import flow_mel
from nightingale.core import SAMPLES_PER_SECOND, Plan, Timings
from nightingale.errors import MissingPackageError


@dataclass(frozen=True, slots=True, eq=False)
class Audio:
    """What `say` returns: 24 kHz mono, and how it came about."""

    samples: NDArray[np.float32]  # (N,), between -1 and 1
    tokens: tuple[int, ...]  # the speech tokens behind it
    is_complete: bool  # False: a part of the text was not said
    timings: Timings
    unspoken: tuple[str, ...] = ()  # characters that the model cannot read
    plan: Plan | None = None  # as it was really computed
    language: tuple[str, float, str | None] | None = None  # if detected: code, confidence, written

    @property
    def seconds(self) -> float:
        return len(self.samples) / SAMPLES_PER_SECOND

    def save(self, path: str | Path, format: str | None = None, rate_hz: int | None = None) -> None:
        """Write a file; the format is that of its name unless said."""
        write(Path(path), [self.samples], format, rate_hz)

    def plot(self) -> Any:
        """Waveform above, mel below: a matplotlib figure."""
        try:
            figures = import_module("matplotlib.figure")
        except ImportError as error:
            raise MissingPackageError(
                "drawing needs matplotlib; install it with pip install 'nightingale-tts[plot]'"
            ) from error
        figure = figures.Figure(figsize=(10, 4), layout="constrained")
        wave, mel = figure.subplots(2, 1, sharex=True)
        times = np.arange(len(self.samples)) / SAMPLES_PER_SECOND
        wave.plot(times, self.samples, linewidth=0.4)
        wave.set(ylim=(-1, 1), ylabel="amplitude")
        frames = flow_mel(torch.from_numpy(self.samples)).T.numpy()  # (80, M)
        mel.imshow(frames, origin="lower", aspect="auto", extent=(0, self.seconds, 0, 80))
        mel.set(xlabel="seconds", ylabel="mel band")
        return figure

    def _repr_html_(self) -> str:
        """In a notebook: a player."""
        sound = base64.b64encode(encode_whole([self.samples], "wav")).decode()
        return f'<audio controls src="data:audio/wav;base64,{sound}"></audio>'
