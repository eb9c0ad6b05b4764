"""A third backend, plugged in by its entry point alone: say, stream, serve and doctor find it."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile

from nightingale import Nightingale, backends
from nightingale.core import SAMPLES_PER_SECOND, SAMPLES_PER_TOKEN
from nightingale.errors import OptionError
from tests.server.running import serving

SINE = Path(__file__).parent / "sine"
FLEDGLING = Path(backends.__file__).parents[1] / "fledgling"
TEXT = "Hello there."


@pytest.fixture
def plugged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SINE))


def test_it_is_small() -> None:
    assert (SINE / "nightingale_sine.py").read_text().count("\n") <= 90


def pitch_hz(samples: np.ndarray[tuple[int], np.dtype[np.float32]]) -> float:
    spectrum = np.abs(np.fft.rfft(samples * np.hanning(len(samples))))
    return float(spectrum.argmax() * SAMPLES_PER_SECOND / len(samples))


@pytest.mark.slow
@pytest.mark.usefixtures("plugged")
def test_it_says_and_streams_one_sine_for_each_text_token(tmp_path: Path) -> None:
    load = {"home": tmp_path, "backend": "sine", "watermark": False}
    whole = Nightingale.load("fledgling", **load)  # type: ignore[arg-type]
    audio = whole.say(TEXT)
    ids = whole.components.tokenizer.encode(TEXT, "en")
    assert audio.tokens == tuple(4 * number + 100 for number in ids)
    assert len(audio.samples) == len(ids) * SAMPLES_PER_TOKEN
    for at in range(1, len(ids) - 1):
        heard = audio.samples[at * SAMPLES_PER_TOKEN : (at + 1) * SAMPLES_PER_TOKEN]
        assert pitch_hz(heard) == pytest.approx(audio.tokens[at], abs=30)
    live = Nightingale.load("fledgling", plan="live", **load)  # type: ignore[arg-type]
    chunks = [chunk.samples for chunk in live.stream(TEXT)]
    assert len(chunks) > 1
    n_same = len(audio.samples) - 1  # the first is zero, and counts as silence before the speech
    assert np.array_equal(np.concatenate(chunks)[-n_same:], audio.samples[1:])


def run(*arguments: str, home: Path) -> subprocess.CompletedProcess[str]:
    environ = {**os.environ, "PYTHONPATH": str(SINE), "NIGHTINGALE_HOME": str(home)}
    command = [sys.executable, "-m", "nightingale", *arguments]
    return subprocess.run(command, env=environ, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_the_command_speaks_with_it_and_doctor_lists_it(tmp_path: Path) -> None:
    file = tmp_path / "sines.wav"
    flags = ("--backend", "sine", "--no-watermark", "-o", str(file))
    said = run("say", TEXT, *flags, home=tmp_path)
    assert said.returncode == 0, said.stderr
    samples, _ = soundfile.read(file)
    assert len(samples) % SAMPLES_PER_TOKEN == 0
    found = run("doctor", home=tmp_path)
    assert re.search(r"backend sine +available", found.stdout)
    assert "one for each text token" in found.stdout


@pytest.mark.slow
def test_the_server_speaks_with_it(tmp_path: Path) -> None:
    flags = ("--backend", "sine", "--no-watermark")
    with serving(FLEDGLING, tmp_path, {}, *flags, PYTHONPATH=str(SINE)) as server:
        pcm = np.frombuffer(server.speak(TEXT), "<i2").astype(np.float32) / 2**15
    assert len(pcm) > 10 * SAMPLES_PER_TOKEN
    assert np.abs(pcm).max() == pytest.approx(0.25, abs=0.01)


def test_a_backend_that_is_not_installed_is_refused_with_those_that_are(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="no backend 'sine'; installed are torch"):
        Nightingale.load("fledgling", home=tmp_path, backend="sine")
