"""Speech that goes on where an interrupted run ended.

A request is a pure function of what its fingerprint names, so a second run makes the same samples.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from nightingale.errors import ResumeError
from nightingale.speech import Checkpoint

if TYPE_CHECKING:
    from nightingale.cli.journal import Journal, Kept
    from nightingale.cli.request import SpeechProgress
    from nightingale.core import Voice
    from nightingale.pipeline import Nightingale
    from nightingale.speech import SpeechStream


def resume_stream(
    tts: Nightingale,
    voice: Voice | None,
    options: dict[str, Any],
    kept: Kept,
    progress: SpeechProgress,
) -> tuple[SpeechStream, Iterator[NDArray[np.float32]]]:
    """The speech, and those of its samples that are not kept yet.

    A known text goes on behind its last whole part. One that arrives on standard input may be
    another one: what is kept of it is computed again and compared.
    """
    if kept.checkpoint is not None and progress.is_known:
        behind = Checkpoint.from_json(kept.checkpoint)
        speech = progress.follow(partial(tts.stream, resume=behind), voice, options)
        return speech, (chunk.samples for chunk in speech)
    speech = progress.follow(tts.stream, voice, options)
    return speech, _behind((chunk.samples for chunk in speech), kept)


def speak_into(
    journal: Journal,
    speech: SpeechStream,
    chunks: Iterator[NDArray[np.float32]],
) -> None:
    """Keep every chunk as soon as it is made, and mark where parts of the text end."""
    for samples in chunks:
        _mark_parts(journal, speech)
        journal.append(samples)
    _mark_parts(journal, speech)
    journal.end(is_complete=speech.is_complete)


def _mark_parts(journal: Journal, speech: SpeechStream) -> None:
    at = speech.checkpoint
    is_new = at is not None and at.n_parts > journal.kept.n_parts
    if at is not None and is_new and at.joined.n_samples == journal.kept.n_samples:
        journal.end_part(at.n_parts, at.to_json(), is_complete=speech.is_complete)


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
