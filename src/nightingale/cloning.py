"""A voice from a recording: inspected, made as loud as the model's own, and measured by speaking.

Knows nothing of how a model speaks: that is handed in.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nightingale.audio.clip import Audio
from nightingale.audio.files import read
from nightingale.audio.loudness import loudness
from nightingale.core import SAMPLES_PER_SECOND, Voice
from nightingale.errors import SpeechError
from nightingale.loader import Components
from nightingale.voice import level
from nightingale.voice.clone import Encoders, clone
from nightingale.voice.encoders import load_encoders
from nightingale.voice.inspect import Report, inspect


@dataclass(frozen=True, slots=True, eq=False)
class ClonedVoice(Voice):
    """A voice, and what was found in its recording."""

    report: Report = field(kw_only=True)


class VoiceCloner:
    """Makes voices for one model; `lock` is held while its encoders compute."""

    def __init__(
        self, components: Components, say: Callable[..., Audio], lock: AbstractContextManager[bool]
    ) -> None:
        self._components, self._say, self._lock = components, say, lock
        self._own_lufs: float | None = None  # once it is known

    def clone(
        self,
        recording: str | Path | bytes,
        *,
        force: bool,
        keep_loudness: bool,
        encoders: Encoders | None,
    ) -> ClonedVoice:
        family, own = self._components.model.family, self._components.voice
        wave = read(recording, SAMPLES_PER_SECOND)
        report = inspect(wave, family, force=force)
        if keep_loudness:
            level.check_kept(family)
        else:
            wave, found = level.normalize(wave, family, own.flow.mel)
            report = replace(report, level=found)
        with self._lock:
            voice = clone(wave, encoders or self.load_encoders(), family)
        if keep_loudness:
            return ClonedVoice(voice.t3, voice.flow, report=report)
        gain_db = level.output_gain_db(self._sample(voice), self.own_loudness())
        report = replace(report, output_gain_db=gain_db)
        return ClonedVoice(voice.t3, voice.flow, gain_db, report=report)

    def load_encoders(self) -> Encoders:
        """The networks that make a voice, beside the model."""
        files, device = self._components.files, self._components.loaded.encoder_device
        return load_encoders(files["s3gen"], files["voice_encoder"], device)

    def own_loudness(self) -> float:
        """LUFS of what the model's own voice speaks; measured once."""
        if self._own_lufs is None:
            self._own_lufs = loudness(self._sample(self._components.voice), SAMPLES_PER_SECOND)
        return self._own_lufs

    def _sample(self, voice: Voice) -> NDArray[np.float32]:
        options = {"seed": 0, "guard": False, "max_tokens": level.MAX_SAMPLE_TOKENS}
        try:
            spoken = [self._say(text, voice, **options).samples for text in level.SAMPLES]
        except SpeechError:
            return np.zeros(0, np.float32)
        return np.concatenate(spoken)
