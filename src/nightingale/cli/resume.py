"""Speech that goes on where an interrupted run ended.

A request is a pure function of what its fingerprint names, so a second run makes the same samples.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nightingale.errors import ResumeError

if TYPE_CHECKING:
    from nightingale.cli.journal import Journal, Kept
    from nightingale.cli.request import SpeechProgress
    from nightingale.core import Voice
    from nightingale.pipeline import Nightingale
    from nightingale.speech import Speech


def resume_stream(
    engine: Nightingale,
    voice: Voice | None,
    options: dict[str, Any],
    kept: Kept,
    progress: SpeechProgress,
) -> tuple[Speech, Iterator[NDArray[np.float32]]]:
    """The speech, and those of its samples that are not kept yet.

    What is kept is computed again and compared: nothing is joined that does not belong together.
    """
    speech = progress.follow(engine.stream, voice, options)
    return speech, _behind((chunk.samples for chunk in speech), kept)


def speak_into(
    journal: Journal,
    speech: Speech,
    chunks: Iterator[NDArray[np.float32]],
) -> None:
    """Keep every chunk as soon as it is made, and mark where parts of the text end."""
    for samples in chunks:
        _mark_parts(journal, speech)
        journal.append(samples)
    _mark_parts(journal, speech)
    journal.end(is_complete=speech.is_complete)


def _mark_parts(journal: Journal, speech: Speech) -> None:
    ends: list[int] = getattr(speech, "part_ends", [])  # samples at which each part ended
    if len(ends) > journal.kept.n_parts and ends[-1] == journal.kept.n_samples:
        journal.end_part(len(ends), is_complete=speech.is_complete)


def _behind(chunks: Iterator[NDArray[np.float32]], kept: Kept) -> Iterator[NDArray[np.float32]]:
    summed, n_left = hashlib.sha256(), kept.n_samples
    for samples in chunks:
        skipped, fresh = samples[:n_left], samples[n_left:]
        if n_left:
            summed.update(skipped.astype("<f4").tobytes())
            n_left -= len(skipped)
            if not n_left:
                _check(summed.hexdigest(), kept)
        if len(fresh):
            yield fresh
    if n_left:
        _check("", kept)


def _check(sha256: str, kept: Kept) -> None:
    if sha256 != kept.sha256:
        raise ResumeError(
            f"the {kept.seconds:.1f} s that are kept are not what this machine speaks now: another "
            "text on standard input, or another processor or library; delete the .partial file to "
            "start again"
        )
