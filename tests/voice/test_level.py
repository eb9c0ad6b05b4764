"""How loud voices are: the gain of a recording, and that of what is spoken."""

from __future__ import annotations

import io
import math
from pathlib import Path

import numpy as np
import pytest
import soundfile
import torch

from nightingale.audio.files import read
from nightingale.audio.loudness import at_loudness, loudness
from nightingale.audio.mel import flow_mel
from nightingale.core import Family, Voice
from nightingale.errors import OptionError
from nightingale.pipeline import Nightingale
from nightingale.voice import level
from tests.audio.corpus import buzz

VOICES = sorted((Path(__file__).parents[1] / "quality/voices").glob("*_cloned.ogg"))
SENTENCES = (
    "I've turned off the kitchen lights and set the thermostat to twenty one degrees.",
    "A small boat moved slowly along the quiet river under a bright moon.",
    "She sells sea shells by the sea shore every summer morning.",
)
MAX_SPREAD_DB = 1.5


@pytest.mark.parametrize("file", VOICES, ids=lambda file: file.stem)
def test_mel_frames_tell_the_loudness_of_their_wave(file: Path) -> None:
    wave = read(file, 24_000)
    found = level.prompt_loudness(flow_mel(torch.from_numpy(wave)).numpy())
    assert found == pytest.approx(loudness(wave, 24_000), abs=1.0)


@pytest.mark.parametrize("gain", [0.1, 1.0, 2.0])
def test_a_recording_is_brought_to_the_level_of_the_models_own(gain: float) -> None:
    wave = read(VOICES[0], 24_000)
    own = at_loudness(read(VOICES[1], 24_000), 24_000, -25.0)
    mel = flow_mel(torch.from_numpy(own)).numpy()
    louder, found = level.normalize(np.float32(gain) * wave, "english", mel)
    assert loudness(louder, 24_000) == pytest.approx(-25.0, abs=1.0)
    assert found.lufs == pytest.approx(loudness(wave, 24_000) + 20 * math.log10(gain), abs=0.01)
    assert found.gain_db == pytest.approx(found.target_lufs - found.lufs, abs=0.06)


def test_turbo_and_nano_have_a_level_of_their_own() -> None:
    wave, mel = buzz(6.0), np.zeros((10, 80), np.float32)
    families: tuple[Family, ...] = ("turbo", "nano")
    for family in families:
        same, found = level.normalize(wave, family, mel)
        assert same is wave  # clone does it, as upstream
        assert found.target_lufs == -27
        with pytest.raises(OptionError, match=f"{family} brings every recording to -27 LUFS"):
            level.check_kept(family)
    level.check_kept("english")


def test_what_is_spoken_is_made_as_loud_as_the_models_own_without_clipping() -> None:
    wave = buzz(4.0)
    lufs = loudness(wave, 24_000)
    assert level.output_gain_db(wave, lufs - 6) == pytest.approx(-6.0)
    assert level.output_gain_db(np.float32(0.1) * wave, lufs) == 12.0  # the most there is
    peaked = wave.copy()
    peaked[100] = 0.8
    assert level.output_gain_db(peaked, lufs + 12) == pytest.approx(1.0)
    for silent in (np.zeros(0, np.float32), np.zeros(48_000, np.float32)):
        assert level.output_gain_db(silent, lufs) == 0.0
    assert level.output_gain_db(wave, -math.inf) == 0.0


def test_no_gain_leaves_every_bit() -> None:
    wave = buzz(1.0)
    assert level.amplified(wave, 0.0) is wave
    assert level.amplified(wave, 6.0).dtype == np.float32


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("recordings", "decoder"),  # which, and how much louder it is made
    [
        pytest.param([(0, -12), (1, 6)], "meanflow", marks=pytest.mark.slow),
        *(
            pytest.param(
                [(n, db) for n in range(4) for db in (-12, 0, 6)],
                decoder,
                marks=pytest.mark.fullsize,
            )
            for decoder in ("standard", "meanflow")
        ),
    ],
)
def test_voices_of_loud_and_quiet_recordings_are_equally_loud(
    tmp_path: Path, recordings: list[tuple[int, int]], decoder: str
) -> None:
    """Fledgling speaks with its own voice and with clones of recordings at several levels."""
    tts = Nightingale.load("fledgling", home=tmp_path, watermark=False, decoder=decoder)
    made: dict[str, Voice] = {"own": tts.components.voice}
    rows = []
    for number, gain_db in recordings:
        wave = read(VOICES[number], 24_000)
        voice = tts.clone(wav_bytes(level.amplified(wave, gain_db)))
        report = voice.report
        assert report.level is not None
        made[f"{VOICES[number].stem} {gain_db:+d} dB"] = voice
        rows.append((report.level.lufs, report.level.gain_db, report.output_gain_db))
    said = {who: [spoken(tts, text, made[who]) for text in SENTENCES] for who in made}
    means = [float(np.mean(levels)) for levels in said.values()]
    before = [mean - made[who].gain_db for who, mean in zip(said, means, strict=True)]
    print(f"\n{'voice':24} recording   gain  output gain   LUFS of each sentence   mean")
    for who, row, mean in zip(said, [(math.nan, 0.0, 0.0), *rows], means, strict=True):
        levels = " ".join(f"{one:6.1f}" for one in said[who])
        print(f"{who:24} {row[0]:9.1f} {row[1]:6.1f} {row[2]:12.1f}   {levels} {mean:8.2f}")
    print(f"spread {np.ptp(means):.2f} dB; without the output gain {np.ptp(before):.2f} dB")
    assert np.ptp(before) > MAX_SPREAD_DB, "nothing to correct: the test shows nothing"
    assert np.ptp(means) < MAX_SPREAD_DB


def spoken(tts: Nightingale, text: str, voice: Voice) -> float:
    return loudness(tts.say(text, voice, seed=1).samples, 24_000)


def wav_bytes(wave: level.Wave) -> bytes:
    file = io.BytesIO()
    soundfile.write(file, wave, 24_000, format="WAV", subtype="FLOAT")
    return file.getvalue()
