"""Where clips begin, end and meet: the samples there, clicks, and silences by what the text has."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import cycle

import numpy as np
from numpy.typing import NDArray

from nightingale.audio.audible import AUDIBLE
from nightingale.core import SAMPLES_PER_SECOND
from nightingale.measure import texts
from nightingale.pipeline import Nightingale
from nightingale.text.split import SINGLE, split

Samples = NDArray[np.float32]

STEP, SILENT = 4e-3, 1e-3  # of full scale
NEAR = SAMPLES_PER_SECOND * 5 // 1000  # samples of silence beside a step that make it a click
APART = SAMPLES_PER_SECOND * 20 // 1000  # zeros that only a pause has


@dataclass(slots=True)
class Joints:
    """What was found in one or more clips."""

    edges: list[float] = field(default_factory=list)  # first and last samples of clips
    seams: list[float] = field(default_factory=list)  # samples beside the zeros of a pause
    n_clicks: int = 0
    silences_ms: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def summary(self) -> dict[str, object]:
        return {
            "n_edges": len(self.edges),
            "largest_edge": max(self.edges, default=0.0),
            "n_seams": len(self.seams) // 2,
            "largest_at_a_seam": max(self.seams, default=0.0),
            "n_clicks": self.n_clicks,
            "silences_ms": {
                kind: {
                    "n": len(found),
                    "min": round(min(found), 1),
                    "median": round(float(np.median(found)), 1),
                    "max": round(max(found), 1),
                }
                for kind, found in sorted(self.silences_ms.items())
            },
        }

    @property
    def is_clean(self) -> bool:
        return self.n_clicks == 0 and max((*self.edges, *self.seams), default=0.0) < 1e-3


def clicks(samples: Samples) -> int:
    """Steps out of silence or into it: sound that begins or ends within one sample.

    Before and behind the clip there is silence, too.
    """
    x = np.pad(samples, NEAR)
    n_loud = np.concatenate(([0], np.cumsum(np.abs(x) >= SILENT)))
    at = np.flatnonzero(np.abs(np.diff(x)) > STEP)  # from sample `at` to the next one
    at = at[(at >= NEAR) & (at + 1 + NEAR <= len(x))]
    before = n_loud[at + 1] - n_loud[at + 1 - NEAR]
    behind = n_loud[at + 1 + NEAR] - n_loud[at + 1]
    return int(np.count_nonzero((before == 0) | (behind == 0)))


def seams(samples: Samples) -> Iterator[float]:
    """Samples on both sides of every run of 20 ms of zeros or more."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], samples == 0, [0]))))
    for start, end in edges.reshape(-1, 2):
        if end - start >= APART and start > 0 and end < len(samples):
            yield float(abs(samples[start - 1]))
            yield float(abs(samples[end]))


def silence_ms(samples: Samples, at: int) -> float:
    """The silence around a place: from the last audible sample before it to the next one."""
    loud = np.flatnonzero(np.abs(samples) > AUDIBLE)
    behind = int(np.searchsorted(loud, at))
    return 1e3 * float(loud[behind] - loud[behind - 1] - 1) / SAMPLES_PER_SECOND


def examine(tts: Nightingale, said: Iterable[str]) -> Joints:
    """Speak each text, and look at the joints; `tts` must speak sentence by sentence."""
    found = Joints()
    for text in said:
        speech, chunks, ends = tts.stream(text), [], {}
        for chunk in speech:
            chunks.append(chunk.samples)
            if (at := speech.checkpoint) is not None:
                ends[at.n_parts] = at.joined.n_samples
        samples = np.concatenate(chunks)
        note(found, samples)
        for end, part in zip(ends.values(), split(text, SINGLE)[1:], strict=False):
            found.silences_ms[part.before.name.lower()].append(silence_ms(samples, end))
    return found


def note(found: Joints, samples: Samples) -> None:
    """The edges, seams and clicks of one clip."""
    found.edges += [float(abs(samples[0])), float(abs(samples[-1]))]
    found.seams += seams(samples)
    found.n_clicks += clicks(samples)


def book(n_words: int) -> str:
    """A text with chapters, paragraphs and lists, of sentences that no model was trained on."""
    sentences = cycle(texts.read("held_out", 200))
    blocks, n = ["THE LAMP", "By nobody in particular"], 6
    while n < n_words:
        paragraphs = [" ".join(next(sentences) for _ in range(4)) for _ in range(5)]
        items = "\n".join(f"- {next(sentences)}" for _ in range(3))
        chapter = [f"# Chapter {len(blocks)}", *paragraphs, items, "* * *"]
        blocks += chapter
        n += sum(len(block.split()) for block in chapter)
    return "\n\n".join(blocks)
