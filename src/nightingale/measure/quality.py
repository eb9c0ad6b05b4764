"""The judge: clips in, a report out: words, voice, sound and pace, over the set and of every clip.

Knows nothing of who made the clips: a model, its teacher and another program are judged alike.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from nightingale.audio.files import Wave
from nightingale.core import SAMPLES_PER_SECOND
from nightingale.errors import AudioError
from nightingale.measure.interval import Interval, bootstrap
from nightingale.measure.sound import SoundJudge
from nightingale.measure.speakers import Embedding, Match, SpeakerJudge, centroid, match
from nightingale.measure.transcriber import Transcriber
from nightingale.measure.words import Edits, character_edits, error_rate, word_edits

JudgeName = Literal["words", "voice", "sound"]


@dataclass(frozen=True, slots=True, eq=False)
class Clip:
    """What is judged: speech, and what it should be."""

    samples: Wave  # (N,), between -1 and 1
    text: str
    voice: str
    rate_hz: int = SAMPLES_PER_SECOND

    def __post_init__(self) -> None:
        if self.samples.ndim != 1 or not np.isfinite(self.samples).all():
            raise AudioError(
                f"the clip of {self.text!r} has shape {self.samples.shape} and should be one row "
                "of finite numbers; was it made by a broken model?"
            )

    @property
    def seconds(self) -> float:
        return len(self.samples) / self.rate_hz


@dataclass(frozen=True, slots=True)
class Row:
    """The verdict on one clip."""

    voice: str
    text: str
    heard: str
    seconds: float
    words: Edits
    characters: Edits
    match: Match | None  # None: voices were not judged
    sound: float | None  # 1 to 5; None: sound was not judged

    @property
    def pace(self) -> float:
        """Letters of the text per second; about 15 is usual. A clip too long or too short tells."""
        return self.characters.n_reference / max(self.seconds, 1e-3)


@dataclass(frozen=True, slots=True)
class Report:
    """The verdict on a set of clips; every figure with its 95 % interval."""

    rows: tuple[Row, ...]

    @property
    def words(self) -> Interval:
        """Word error rate."""
        return error_rate([row.words for row in self.rows])

    @property
    def characters(self) -> Interval:
        """Character error rate, without spaces."""
        return error_rate([row.characters for row in self.rows])

    @property
    def own_voice(self) -> Interval | None:
        """Mean similarity to the voice that it should be."""
        return _mean(match.own for match in self._matches())

    @property
    def other_voice(self) -> Interval | None:
        """Mean similarity to the nearest wrong voice."""
        return _mean(match.other for match in self._matches())

    @property
    def right_voice(self) -> Interval | None:
        """Share of clips that are nearer to their own voice than to any other."""
        return _mean(float(match.is_right) for match in self._matches())

    @property
    def sound(self) -> Interval | None:
        """Mean rating, 1 to 5."""
        return _mean(row.sound for row in self.rows)

    @property
    def pace(self) -> Interval:
        """Letters per second."""
        letters = [row.characters.n_reference for row in self.rows]
        return bootstrap(letters, [row.seconds for row in self.rows])

    def worst(self, n_rows: int, judge: JudgeName = "words") -> list[Row]:
        """The clips that a judge likes least, worst first."""
        return sorted(self.rows, key=_BADNESS[judge], reverse=True)[:n_rows]

    def facts(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        figures = {name: getattr(self, name) for name in FIGURES}
        return {
            "n_clips": len(self.rows),
            **{name: figure and asdict(figure) for name, figure in figures.items()},
            "word_edits": asdict(sum((row.words for row in self.rows), Edits(0))),
            "character_edits": asdict(sum((row.characters for row in self.rows), Edits(0))),
            "clips": [asdict(row) | {"pace": row.pace} for row in self.rows],
        }

    def _matches(self) -> list[Match]:
        return [row.match for row in self.rows if row.match]


class Judge:
    """Words always; voices and sound when their judges are there."""

    def __init__(
        self,
        transcriber: Transcriber,
        speakers: SpeakerJudge | None = None,
        sound: SoundJudge | None = None,
    ) -> None:
        self.transcriber = transcriber
        self.speakers = speakers
        self.sound = sound

    @classmethod
    def load(cls, folder: Path, n_threads: int = 1) -> Judge:
        """All three, from the folder that holds whisper-base, ecapa and distillmos."""
        return cls(Transcriber(folder, n_threads), SpeakerJudge(folder), SoundJudge(folder))

    def enroll(self, clips: Iterable[Clip]) -> dict[str, Embedding]:
        """What the voices are like: the clips of each one, together."""
        by_voice: dict[str, list[Embedding]] = defaultdict(list)
        if self.speakers:
            for clip in clips:
                by_voice[clip.voice].append(self.speakers.embed(clip.samples, clip.rate_hz))
        return {voice: centroid(embeddings) for voice, embeddings in by_voice.items()}

    def score(self, clips: Iterable[Clip], voices: Mapping[str, Embedding]) -> Report:
        """Judge clip after clip; `voices` come from `enroll`."""
        return Report(tuple(self.score_one(clip, voices) for clip in clips))

    def score_one(self, clip: Clip, voices: Mapping[str, Embedding]) -> Row:
        heard = self.transcriber.transcribe(clip.samples, clip.rate_hz)
        matched = None
        if self.speakers:
            matched = match(self.speakers.embed(clip.samples, clip.rate_hz), clip.voice, voices)
        return Row(
            voice=clip.voice,
            text=clip.text,
            heard=heard,
            seconds=clip.seconds,
            words=word_edits(clip.text, heard),
            characters=character_edits(clip.text, heard),
            match=matched,
            sound=self.sound.rate(clip.samples, clip.rate_hz) if self.sound else None,
        )


# name of a figure -> (what people read, how it is written)
FIGURES: dict[str, tuple[str, str]] = {
    "words": ("word error rate", "{:.1%}"),
    "characters": ("character error rate", "{:.1%}"),
    "own_voice": ("speaker similarity", "{:.2f}"),
    "other_voice": ("similarity to the nearest other", "{:.2f}"),
    "right_voice": ("own voice is nearest", "{:.1%}"),
    "sound": ("sound, 1 to 5", "{:.2f}"),
    "pace": ("letters per second", "{:.1f}"),
}

_BADNESS: dict[JudgeName, Callable[[Row], float]] = {
    "words": lambda row: row.words.rate,
    "voice": lambda row: (row.match.other or 0.0) - row.match.own if row.match else 0.0,
    "sound": lambda row: -row.sound if row.sound is not None else 0.0,
}


def _mean(values: Iterable[float | None]) -> Interval | None:
    known = [value for value in values if value is not None]
    return bootstrap(known) if known else None
