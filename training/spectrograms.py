"""Pictures and sounds for docs/fledgling.md: the same sentences by teacher, tokens and model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import soundfile
import torch
import typer
from matplotlib.figure import Figure

from nightingale.audio.files import Wave
from nightingale.audio.mel import flow_mel
from nightingale.core import SAMPLES_PER_SECOND
from training.evaluate import Synthesizer

TITLES = {
    "teacher": "teacher",
    "rebuilt": "rebuilt from the teacher's tokens",
    "standard": "Fledgling, ten steps",
    "meanflow": "Fledgling, two steps",
}
N_SENTENCES = 3


def draw(said: dict[str, Wave], text: str, file: Path) -> None:
    """Mel frames of one sentence, one row for each who says it, on one scale of time."""
    figure = Figure(figsize=(10, 1.9 * len(said)), layout="constrained")
    figure.suptitle(text)
    longest = max(map(len, said.values())) / SAMPLES_PER_SECOND
    axes = figure.subplots(len(said), 1, sharex=True)
    for axis, (system, samples) in zip(axes, said.items(), strict=True):
        frames = flow_mel(torch.from_numpy(samples)).T.numpy()  # (80, M)
        seconds = len(samples) / SAMPLES_PER_SECOND
        axis.imshow(
            frames, origin="lower", aspect="auto", extent=(0, seconds, 0, 80), vmin=-11, vmax=1
        )
        axis.set(title=TITLES[system], ylabel="mel band", xlim=(0, longest))
    axes[-1].set(xlabel="seconds")
    figure.savefig(file, dpi=80)


def main(
    model: Path, sounds: Path = Path("fledgling-sounds"), pictures: Path = Path("docs/pictures")
) -> None:
    """Write a WAV for each sentence and system, and a picture for each sentence."""
    for folder in (sounds, pictures):
        folder.mkdir(parents=True, exist_ok=True)
    clips = {system: list(Synthesizer(model, N_SENTENCES).clips(system)) for system in TITLES}
    for number, rows in enumerate(zip(*clips.values(), strict=True), start=1):
        said = {system: clip.samples for system, clip in zip(TITLES, rows, strict=True)}
        for system, samples in said.items():
            file = sounds / f"{number}-{system}.wav"
            soundfile.write(file, np.asarray(samples), SAMPLES_PER_SECOND)
            typer.echo(file)
        draw(said, rows[0].text, pictures / f"fledgling-{number}.png")


if __name__ == "__main__":
    typer.run(main)
