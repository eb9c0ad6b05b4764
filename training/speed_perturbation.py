"""More voices by speed perturbation: each, played faster or slower, is higher or lower too.

Used by tokenizer, flow and x-vectors, which have to generalise over speakers; not by T3.
"""

from __future__ import annotations

import numpy as np
import soxr
import typer

from training import corpus
from training.clips import RATE, Corpus

SPEEDS = (0.84, 0.92, 1.1, 1.2)
SECONDS = 240  # of each


def perturb(voice: str, speed: float) -> str:
    """A new voice out of the beginning of another; its name."""
    name = f"{voice}{corpus.PERTURBED}{round(100 * speed)}"
    made = Corpus(corpus.CORPUS, name)
    done = {utterance.id for utterance in made.utterances}
    for utterance in corpus.read(voice):
        if made.seconds >= SECONDS:
            break
        if utterance.split != "train" or utterance.id in done:
            continue
        samples = soxr.resample(utterance.samples(), RATE * speed, RATE)
        samples = np.clip(np.round(samples * 32767), -32768, 32767).astype(np.int16)
        made.add(utterance.id, utterance.text, utterance.phonemes, samples, "train")
    return name


def main() -> None:
    voices = [v for v in corpus.voices() if corpus.is_learned(v) and not corpus.is_perturbed(v)]
    for number, voice in enumerate(sorted(voices, key=corpus.is_extra)):  # the cast first
        for speed in SPEEDS[number % 2 :: 2]:
            typer.echo(perturb(voice, speed))


if __name__ == "__main__":
    main()
