"""The one door of speech recognition: Whisper base by faster-whisper, the same words on every run.

Beam search without sampling: no temperature, hence none of the usual retries. What may be written
is bounded by how long the clip is, so that a loop of the judge cannot outweigh a hundred clips.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from nightingale.audio.files import Wave, resample
from nightingale.audio.mel import SPEECH_HZ
from nightingale.errors import MissingPackageError
from nightingale.measure.judges import WHISPER, locate
from nightingale.nn.device import HOST

BEAM = 5
SILENCE = 1e-3  # of full scale; for what is quieter, Whisper makes words up
WINDOW_SECONDS = 30  # what Whisper hears at once
TOKENS_PER_SECOND = 10  # nobody speaks faster
SPARE_TOKENS = 24  # times are written down too


class Transcriber:
    """Writes down what it hears."""

    def __init__(self, folder: Path, n_threads: int = 1) -> None:
        """`folder` is that of all judges."""
        model = locate(folder, WHISPER)
        try:
            library = import_module("faster_whisper")
        except ImportError as error:
            raise MissingPackageError(
                "judging words needs faster-whisper; "
                "install it with pip install 'nightingale-tts[judge]'"
            ) from error
        self.whisper: Any = library.WhisperModel(
            str(model.parent), device=HOST.type, compute_type="int8", cpu_threads=n_threads
        )

    def transcribe(self, samples: Wave, rate_hz: int) -> str:
        """The words in a clip; empty when there are none."""
        wave = resample(samples, rate_hz, SPEECH_HZ)
        seconds = len(wave) / SPEECH_HZ
        if np.abs(wave).max(initial=0) < SILENCE:
            return ""
        segments, _ = self.whisper.transcribe(
            wave,
            language="en",
            beam_size=BEAM,
            temperature=0.0,
            condition_on_previous_text=False,
            without_timestamps=False,  # without them, ends of sentences go missing now and then
            max_new_tokens=SPARE_TOKENS + int(TOKENS_PER_SECOND * min(seconds, WINDOW_SECONDS)),
        )
        return " ".join(segment.text.strip() for segment in segments)
