"""One request, one sound: whatever the listener does, however many threads, whoever else speaks."""

from __future__ import annotations

import hashlib
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator

import numpy as np
import torch

from nightingale.core import SAMPLES_PER_TOKEN, AudioChunk
from nightingale.pipeline import Nightingale
from nightingale.speech import SpeechStream

LISTENERS = (1, 2, 7, 25, 50, None)  # tokens of sound that are taken at a time; None: all there is
THREADS = (1, 2)
BESIDE = "Somebody else is speaking at the same time, and not briefly."


def identity(
    tts: Nightingale, texts: list[str], n_runs: int, max_tokens: int = 400
) -> dict[str, Counter[str]]:
    """Which sounds each text got, and how often."""
    found: dict[str, Counter[str]] = {text: Counter() for text in texts}
    ways = itertools.cycle(itertools.product(LISTENERS, THREADS, (False, True), texts))
    usual = torch.get_num_threads()
    try:
        for run, (n_tokens, n_threads, is_beside, text) in zip(range(n_runs), ways, strict=False):
            torch.set_num_threads(n_threads)
            speech = tts.stream(text, seed=3, max_tokens=max_tokens)
            beside = tts.stream(BESIDE, seed=run, max_tokens=max_tokens)
            found[text][_hash(_cut(_listen(speech, beside if is_beside else None), n_tokens))] += 1
    finally:
        torch.set_num_threads(usual)
    return found


def _listen(speech: SpeechStream, other: SpeechStream | None) -> Iterator[AudioChunk]:
    """A step of each by turns."""
    while True:
        try:
            chunk = speech.step()
        except StopIteration:
            return
        if chunk:
            yield chunk
        if other:
            try:
                other.step()
            except StopIteration:
                other = None


def _cut(chunks: Iterable[AudioChunk], n_tokens: int | None) -> Iterator[bytes]:
    """As a listener takes them who wants so much at a time."""
    if n_tokens is None:
        yield b"".join(chunk.samples.tobytes() for chunk in chunks)
        return
    n, held = n_tokens * SAMPLES_PER_TOKEN, np.empty(0, np.float32)
    for chunk in chunks:
        held = np.concatenate((held, chunk.samples))
        while len(held) >= n:
            taken, held = held[:n], held[n:]
            yield taken.tobytes()
    yield held.tobytes()


def _hash(pieces: Iterable[bytes]) -> str:
    whole = hashlib.sha256()
    for piece in pieces:
        whole.update(piece)
    return whole.hexdigest()[:16]
