"""What `say` returns: it can be heard, kept and looked at."""

from __future__ import annotations

import base64
import io
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile

from nightingale.audio.clip import Audio
from nightingale.core import Timings
from nightingale.errors import MissingPackageError, OptionError


@pytest.fixture
def clip() -> Audio:
    time = np.arange(12_000) / 24_000
    tone = (0.5 * np.sin(2 * np.pi * 440 * time)).astype(np.float32)
    return Audio(tone, (1, 2, 3), True, Timings(1, 2, 3, 4, 5))


def test_it_knows_its_length_and_where_the_time_went(clip: Audio) -> None:
    assert clip.seconds == 0.5
    assert clip.timings.total_ms == 15


def test_a_notebook_shows_a_player_with_the_whole_sound(clip: Audio) -> None:
    found = re.fullmatch(
        r'<audio controls src="data:audio/wav;base64,([^"]+)"></audio>', clip._repr_html_()
    )
    assert found
    wave, rate = soundfile.read(io.BytesIO(base64.b64decode(found[1])))
    assert (len(wave), rate) == (12_000, 24_000)
    assert np.abs(wave - clip.samples).max() < 1e-4


def test_it_is_saved_in_the_format_of_the_name(clip: Audio, tmp_path: Path) -> None:
    clip.save(tmp_path / "tone.flac")
    assert soundfile.info(tmp_path / "tone.flac").format == "FLAC"
    clip.save(tmp_path / "tone.bin", format="wav", rate_hz=8_000)
    assert soundfile.info(tmp_path / "tone.bin").frames == 4_000
    with pytest.raises(OptionError, match="known endings"):
        clip.save(tmp_path / "tone.doc")


@pytest.mark.slow  # matplotlib is two seconds to import
def test_a_plot_has_the_waveform_and_the_mel(clip: Audio, tmp_path: Path) -> None:
    figure = clip.plot()
    figure.savefig(tmp_path / "tone.png")
    wave, mel = figure.axes
    assert wave.lines[0].get_ydata().max() == pytest.approx(0.5, abs=1e-3)
    image = mel.images[0].get_array()
    assert image.shape[0] == 80
    loudest = int(image.mean(axis=1).argmax())
    assert 8 <= loudest <= 14  # where 440 Hz lies on that scale


def test_without_matplotlib_the_command_that_adds_it_is_told(
    clip: Audio, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'nightingale-tts\[plot\]'"):
        clip.plot()
