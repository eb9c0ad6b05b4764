"""Built-in voices, cloned from the teachers' speech: `python -m training.built_in FOLDER`.

Each is a few seconds of one of Kokoro's synthetic voices, short because every request pays for it.
"""

from __future__ import annotations

import io
from pathlib import Path

import soundfile
import typer

from nightingale.pipeline import Nightingale
from nightingale.voice.library import to_bytes
from nightingale.voice.metadata import VoiceMetadata
from training import corpus
from training.clips import RATE
from training.pack import N_PROMPT_TOKENS
from training.work import work

VOICES = {"emma": "bf_emma", "fenrir": "am_fenrir", "michael": "am_michael"}
CONSENT = "a synthetic voice of Kokoro-82M (Apache-2.0)"


def recording(voice: str) -> bytes:
    """Its first utterance that is long enough, cut."""
    long = (u for u in corpus.read(voice) if u.split == "train" and u.n_tokens >= N_PROMPT_TOKENS)
    samples, file = next(long).samples()[: N_PROMPT_TOKENS * 960], io.BytesIO()
    soundfile.write(file, samples, RATE, format="WAV")
    return file.getvalue()


def main(folder: Path) -> None:
    tts = Nightingale.load(folder, home=work() / "home", device="cpu", watermark=False)
    (folder / "voices").mkdir(exist_ok=True)
    for name, teacher in VOICES.items():
        voice = tts.clone(recording(teacher))
        file = folder / "voices" / f"{name}.safetensors"
        file.write_bytes(to_bytes(voice, VoiceMetadata("fledgling", "en", consent=CONSENT)))
        typer.echo(f"{file.name}: {file.stat().st_size / 1000:.0f} kB, {voice.report.summary}")


if __name__ == "__main__":
    typer.run(main)
