"""Speech is told from noise, hum, tones and music; the voices are synthetic, but sound human."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from nightingale.audio.files import read, resample
from nightingale.errors import AudioError
from nightingale.voice.inspect import inspect
from nightingale.voice.speech_detection import measure
from tests.voice.clips import espeak

Wave = NDArray[np.float32]

VOICES = sorted((Path(__file__).parents[1] / "quality/voices").glob("*.ogg"))
SECONDS = 6
TIME = np.arange(SECONDS * 24_000) / 24_000


def random() -> np.random.Generator:
    return np.random.default_rng(0)


def coloured(power: float) -> NDArray[np.float64]:
    """Noise whose power falls with that power of the frequency."""
    spectrum = np.fft.rfft(random().standard_normal(TIME.size))
    spectrum[1:] /= np.arange(1, len(spectrum)) ** (power / 2)
    wave = np.fft.irfft(spectrum)
    return np.asarray(0.1 * wave / wave.std())


def harmonics(hz: float, time: NDArray[np.float64] = TIME, n: int = 10) -> NDArray[np.float64]:
    return np.asarray(sum(np.sin(2 * np.pi * hz * k * time) / k for k in range(1, n)))


def melody(decay: float, seconds: float) -> NDArray[np.float64]:
    time = np.arange(int(seconds * 24_000)) / 24_000
    notes = 110 * 2 ** (random().integers(0, 18, 60) / 12)
    wave = np.concatenate([harmonics(hz, time) * np.exp(-decay * time) for hz in notes])
    return np.asarray(wave[: TIME.size])


def pulses(every: int) -> NDArray[np.float64]:
    wave = np.zeros(TIME.size)
    wave[::every] = 1
    return wave


NON_SPEECH: dict[str, Callable[[], NDArray[np.float64]]] = {
    "white noise": lambda: coloured(0),
    "pink noise": lambda: coloured(1),
    "brown noise": lambda: coloured(2),
    "noise in syllables": lambda: coloured(1) * np.clip(np.sin(2 * np.pi * 4 * TIME), 0, 1),
    "surf": lambda: coloured(1) * (1 + np.sin(2 * np.pi * 0.3 * TIME)),
    "near silence": lambda: 0.02 * coloured(0),
    "hum 50 Hz": lambda: harmonics(50),
    "hum 60 Hz": lambda: harmonics(60),
    "hum and noise": lambda: harmonics(100) + coloured(1),
    "sine": lambda: harmonics(440, n=2),
    "held note": lambda: harmonics(220),
    "note in syllables": lambda: harmonics(150) * np.clip(np.sin(2 * np.pi * 4 * TIME), 0, 1),
    "chord": lambda: harmonics(131) + harmonics(165) + harmonics(196),
    "sweep": lambda: np.sin(2 * np.pi * (100 * TIME + 300 * TIME**2)),
    "piano": lambda: melody(6.0, 0.3),
    "organ": lambda: melody(0.0, 0.25),
    "ringing": lambda: harmonics(400, n=2) * (TIME % 3 < 1),
    "clicks": lambda: pulses(6000),
    "drums": lambda: np.convolve(pulses(7000), coloured(0)[:3000] * np.exp(-np.arange(3000) / 400))[
        : TIME.size
    ],
}


@pytest.mark.parametrize("name", NON_SPEECH)
def test_what_is_no_speech_is_refused(name: str) -> None:
    wave = NON_SPEECH[name]()
    wave = (0.3 * wave / np.abs(wave).max()).astype(np.float32)
    with pytest.raises(AudioError, match=r"does not sound like speech: .*--force.*force=true"):
        inspect(wave, "fledgling")
    assert "not sound like speech" in inspect(wave, "fledgling", force=True).warnings[0]


@pytest.mark.parametrize("file", VOICES, ids=lambda file: file.stem)
def test_speech_is_accepted_whatever_its_length_and_level(file: Path) -> None:
    wave = read(file, 24_000)
    for seconds, gain in ((2, 1.0), (3, 0.05), (6, 1.0)):
        cut = (gain * wave[: seconds * 24_000]).astype(np.float32)
        assert measure(cut).reason is None, (seconds, gain, measure(cut))


def test_speech_in_noise_is_accepted() -> None:
    for file in VOICES[::2]:
        wave = read(file, 24_000)[:96_000]
        noise = 0.2 * wave.std() * random().standard_normal(wave.size)  # 14 dB below
        assert measure((wave + noise).astype(np.float32)).reason is None


@pytest.mark.slow
def test_many_voices_and_languages_are_accepted(tmp_path: Path) -> None:
    """By espeak-ng, which is less like speech than people are."""
    voices = ("en", "en-us+f2", "de+m3", "fr", "es+f4", "it", "pl", "ru", "tr", "fi", "hi+m7")
    refused = []
    for voice in voices:
        wave, rate_hz = espeak(voice, 160, 50, tmp_path / "said.wav")
        evidence = measure(resample(wave[: 6 * rate_hz], rate_hz, 24_000))
        refused += [(voice, evidence)] if evidence.reason else []
    assert refused == []


def test_a_clip_of_a_second_needs_insistence() -> None:
    wave = read(VOICES[0], 24_000)[:36_000]
    with pytest.raises(AudioError, match=r"1\.5 s, but a voice needs 2 s or more.*--force"):
        inspect(wave, "fledgling")
    assert "1.5 s" in inspect(wave, "fledgling", force=True).warnings[0]
    with pytest.raises(AudioError, match="more than 1 s"):  # less than the model can use at all
        inspect(wave[:20_000], "fledgling", force=True)


def test_a_recording_of_a_telephone_is_warned_about() -> None:
    for file in VOICES[::4]:
        wave = read(file, 24_000)[:96_000]
        assert not any("4 kHz" in text for text in inspect(wave, "fledgling").warnings)
        narrow = resample(resample(wave, 24_000, 8_000), 8_000, 24_000)
        assert any("4 kHz" in text for text in inspect(narrow, "fledgling").warnings)


def test_digital_silence_around_the_speech_does_no_harm() -> None:
    wave = read(VOICES[0], 24_000)[:72_000]
    padded = np.concatenate((np.zeros(48_000, np.float32), wave, np.zeros(24_000, np.float32)))
    assert measure(padded).reason is None
    assert measure(np.zeros(48_000, np.float32)).reason is not None
