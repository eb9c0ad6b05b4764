"""Somebody interrupts, at any moment: it stops within a step, and nothing comes afterwards."""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass, field

from nightingale.pipeline import Nightingale

TEXT = "You asked me to wake you at seven, and it is seven now, so here I am, as you wished."


@dataclass(slots=True)
class Cancels:
    """What happened."""

    stopped_ms: list[float] = field(default_factory=list)  # from the call to the end
    n_after: int = 0  # chunks that came after the call, though no step was under way
    n_late: int = 0  # that took longer than the longest step of their own speech, and a window
    n_finished: int = 0  # were at their end before they could be cancelled


def cancels(tts: Nightingale, n: int, seed: int = 0, text: str = TEXT) -> Cancels:
    found, rng = Cancels(), random.Random(seed)
    whole_s = min(_seconds(tts, text) for _ in range(3))
    for _ in range(n):
        speech = tts.stream(text, seed=1)
        called: list[float] = []
        steps: list[tuple[float, float, bool]] = []

        def call(stop=speech.cancel, called_at=called) -> None:  # type: ignore[no-untyped-def]
            called_at.append(time.perf_counter())
            stop()

        timer = threading.Timer(rng.uniform(0, whole_s), call)
        timer.start()
        while True:
            start = time.perf_counter()
            try:
                chunk = speech.step()
            except StopIteration:
                break
            steps.append((start, time.perf_counter(), chunk is not None))
        ended = time.perf_counter()
        timer.cancel()
        timer.join()
        if not called or called[0] > ended:
            found.n_finished += 1
            continue
        found.stopped_ms.append(1e3 * (ended - called[0]))
        found.n_after += sum(start > called[0] and is_sound for start, _, is_sound in steps)
        begun_after = sum(start > called[0] for start, _, _ in steps)
        found.n_late += begun_after > 1
    return found


def _seconds(tts: Nightingale, text: str) -> float:
    start = time.perf_counter()
    tts.say(text, seed=1)
    return time.perf_counter() - start
