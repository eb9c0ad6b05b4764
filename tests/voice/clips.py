"""Spoken clips of many voices, lengths, rates, channels and formats; the same on every run."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
import soundfile
from numpy.typing import NDArray

from nightingale.audio.files import resample

VOICES = ["en", "en-us", "de", "fr", "es", "it", "pt", "nl", "pl", "ru", "sv", "tr", "fi", "hi"]
VARIANTS = ["", "+f2", "+m3", "+f4", "+m7", "+croak", "+whisper"]
TEXT = (
    "A nightingale sang in the dark of the garden, 24 times or more, and nobody counted. "
    "Who would have thought that so small a bird could be heard from so far away? "
    "Later the rain came, first softly, then with the noise of a train that does not stop."
)
RATES_HZ = (22_050, 16_000, 44_100, 48_000, 24_000, 8_000, 11_025, 96_000, 32_000)
KINDS = (("wav", "PCM_16"), ("flac", "PCM_24"), ("wav", "FLOAT"), ("ogg", "VORBIS"), ("mp3", None))


def espeak(voice: str, speed: int, pitch: int, to: Path) -> tuple[NDArray[np.float32], int]:
    program = shutil.which("espeak-ng")
    if program is None:
        pytest.fail("no espeak-ng to make clips with: apt-get install -y espeak-ng")
    subprocess.run(
        [program, "-v", voice, "-s", str(speed), "-p", str(pitch), "-w", str(to), TEXT], check=True
    )
    wave, rate_hz = soundfile.read(to, dtype="float32")
    return wave, rate_hz


def make_clip(number: int, seconds: float, folder: Path) -> Path:
    """One clip: voice, manner, rate, channels, loudness, noise and format hang on its number."""
    generator = np.random.default_rng(number)
    voice = VOICES[number % len(VOICES)] + VARIANTS[number % len(VARIANTS)]
    speed, pitch = 110 + 13 * number % 110, 7 * number % 100
    wave, from_hz = espeak(voice, speed, pitch, folder / "spoken.wav")
    rate_hz = RATES_HZ[number % len(RATES_HZ)]
    wave = np.tile(resample(wave, from_hz, rate_hz), 3)[: int(seconds * rate_hz)]
    noise = 0.003 * generator.standard_normal(wave.size, np.float32)
    wave = np.float32(generator.uniform(0.1, 1.2)) * wave + noise
    if number % 3 == 0:
        wave = np.stack((wave, 0.5 * np.roll(wave, 9)), axis=1)
    kind, codec = KINDS[number % len(KINDS)]
    if kind == "mp3" and rate_hz > 48_000:
        kind, codec = "flac", "PCM_16"
    path = folder / f"clip{number}.{kind}"
    soundfile.write(path, wave, rate_hz, subtype=codec)
    return path
