"""Recordings of every kind, good and bad: a bounded finite wave, or an error that helps."""

from __future__ import annotations

import collections
import dataclasses
import io
import itertools
import math
import os
import re
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import soundfile
import soxr

from nightingale.audio.files import LIMITS, Limits, Wave, read, resample
from nightingale.errors import AudioError
from tests.audio.corpus import KINDS, buzz, crafted, good, mutations, patched, wav

PATIENCE_SECONDS = 5.0  # for a file of some kilobytes, on a busy machine
N_MUTATIONS = 500
MAX_MEGABYTES = 24  # for any of the small files, whatever it claims

CRAFTED = crafted()


def check_wave(wave: Wave, limits: Limits = LIMITS) -> None:
    assert wave.dtype == np.float32
    assert wave.ndim == 1
    assert np.isfinite(wave).all()
    assert limits.min_seconds * 24_000 <= len(wave) <= limits.max_seconds * 24_000 + 1


@pytest.mark.slow
@pytest.mark.parametrize("name", CRAFTED)
def test_a_crafted_file_is_read_or_refused_for_the_right_reason(name: str) -> None:
    data, reason = CRAFTED[name]
    start = time.monotonic()
    if reason is None:
        check_wave(read(data, 24_000))
    else:
        with pytest.raises(AudioError, match=reason):
            read(data, 24_000)
    assert time.monotonic() - start < PATIENCE_SECONDS


def test_damaged_files_give_a_wave_or_an_audio_error_and_nothing_else() -> None:
    tally = collections.Counter[str]()
    for name, data in mutations(range(N_MUTATIONS)):
        start = time.monotonic()
        try:
            check_wave(read(data, 24_000))
            tally["read"] += 1
        except AudioError as error:
            tally[re.split(r"[(:]|\d|begins", str(error))[0].strip()] += 1
        assert time.monotonic() - start < PATIENCE_SECONDS, name
    print(f"{tally.total()} damaged files: {dict(tally.most_common(6))}")
    assert tally["read"] > N_MUTATIONS // 20, "all refused: too damaged to try a decoder"
    assert tally["read"] < N_MUTATIONS // 2, "hardly any refused: not damaged enough"


def test_mutations_are_the_same_on_every_run() -> None:
    twice = [list(mutations(range(40, 60))) for _ in range(2)]
    assert twice[0] == twice[1]


@pytest.mark.parametrize("name", ["flac of a month", "claims two gigabytes", "channels 1024"])
def test_what_a_header_claims_is_not_allocated(name: str) -> None:
    tracemalloc.start()
    with pytest.raises(AudioError):
        read(CRAFTED[name][0], 24_000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < MAX_MEGABYTES * 2**20


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_blocks_give_the_samples_of_one_reading(kind: str) -> None:
    """12 s of stereo are several blocks; a decoder that seeks between them would start anew."""
    data = good(kind, 12.0, 24_000, 2)
    with soundfile.SoundFile(io.BytesIO(data)) as file:
        whole = file.read(dtype="float32")
    assert np.array_equal(read(data, 24_000), whole.T.mean(axis=0))


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_sounds_like_what_was_written(kind: str) -> None:
    wave = read(good(kind), 24_000)
    expected = buzz()
    assert abs(len(wave) - len(expected)) <= 1
    n = min(len(wave), len(expected))
    assert np.corrcoef(wave[:n], expected[:n])[0, 1] > 0.98


@pytest.mark.parametrize("rate_hz", [8_000, 11_025, 22_050, 44_100, 48_000, 96_000])
def test_a_recording_is_mixed_to_mono_and_then_resampled_by_soxr(rate_hz: int) -> None:
    data = good("float", 2.3, rate_hz, 2)
    stereo, _ = soundfile.read(io.BytesIO(data), dtype="float32")
    expected = soxr.resample(stereo.mean(axis=1), rate_hz, 24_000, "HQ")
    wave = read(data, 24_000)
    assert len(wave) == math.ceil(len(stereo) * (24_000 / rate_hz))  # as librosa rounds
    assert np.array_equal(wave[: len(expected)], expected[: len(wave)])
    assert np.abs(wave[len(expected) :]).sum() == 0


@pytest.mark.parametrize(
    ("n_in", "from_hz", "to_hz", "n_out"),
    [
        (24_000, 24_000, 16_000, 16_000),
        (24_001, 24_000, 16_000, 16_001),
        (100, 44_100, 24_000, 55),
        (1, 96_000, 24_000, 1),
        (7, 16_000, 24_000, 11),
        (5, 24_000, 24_000, 5),
    ],
)
def test_a_started_sample_counts(n_in: int, from_hz: int, to_hz: int, n_out: int) -> None:
    assert len(resample(np.ones(n_in, np.float32), from_hz, to_hz)) == n_out


def test_a_file_is_read_by_what_it_holds_not_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_bytes(good("flac"))
    (tmp_path / "voice.wav").write_text("no sound here, only words")
    assert np.array_equal(read(tmp_path / "notes.txt", 24_000), read(good("flac"), 24_000))
    assert np.array_equal(read(str(tmp_path / "notes.txt"), 24_000), read(good("flac"), 24_000))
    with pytest.raises(AudioError, match="no kind we know"):
        read(tmp_path / "voice.wav", 24_000)


def test_things_that_are_not_files_are_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")  # nobody will ever write into it
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    (tmp_path / "link").symlink_to("/dev/zero")
    cases = {
        tmp_path: "is a folder",
        tmp_path / "pipe": "device or a pipe",
        tmp_path / "link": "device or a pipe",
        Path("/dev/zero"): "device or a pipe",
        tmp_path / "loop": "cannot be opened",
        tmp_path / "none.wav": "cannot be opened: No such file",
        Path("a\0b"): "cannot be opened",
        tmp_path / ("long" * 1000): "cannot be opened",
    }
    start = time.monotonic()
    for path, reason in cases.items():
        with pytest.raises(AudioError, match=reason):
            read(path, 24_000)
    assert time.monotonic() - start < PATIENCE_SECONDS


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (Limits(max_bytes=2**15), "more than 0 MB"),
        (Limits(max_seconds=0.5), "longer than 0.5 s"),
        (Limits(min_seconds=1.5), "less than 1.5 s"),
        (Limits(max_rate_hz=16_000), "1000 to 16000 can be read"),
        (Limits(max_channels=0), "1 to 0 can be read"),
        (Limits(max_samples=2000), "more than 2,000 samples in its 1 channels"),
        (Limits(max_work_seconds=-1.0), "takes too long"),
    ],
)
def test_every_limit_holds(limits: Limits, reason: str, tmp_path: Path) -> None:
    (tmp_path / "clip.wav").write_bytes(good("wav"))
    for source in (good("wav"), tmp_path / "clip.wav"):
        with pytest.raises(AudioError, match=reason):
            read(source, 24_000, limits)


@pytest.mark.slow
def test_time_runs_out_inside_the_decoder_too() -> None:
    """Millions of empty blocks of metadata are read before the decoder returns once."""
    data = b"fLaC" + b"\1\0\0\0" * 2**22

    def time_of(limits: Limits, reason: str) -> float:
        start = time.monotonic()
        with pytest.raises(AudioError, match=reason):
            read(data, 24_000, limits)
        return time.monotonic() - start

    whole = time_of(LIMITS, "damaged")
    assert time_of(Limits(max_work_seconds=whole / 10), "takes too long") < whole / 2


@pytest.mark.slow
def test_a_wave_is_whole_whenever_the_time_runs_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a clock that ticks at every look; this file does not say how long it should be."""
    data = good("flac", 12.0, 24_000, 2)
    data = patched(data, 21, bytes([data[21] & 240]) + bytes(4))
    whole, outcomes = read(data, 24_000), set()
    for n_ticks in range(1, 120, 7):
        ticks = itertools.count()
        monkeypatch.setattr("nightingale.audio.files.time.monotonic", lambda t=ticks: next(t))
        try:
            assert np.array_equal(read(data, 24_000, Limits(max_work_seconds=n_ticks)), whole)
            outcomes.add("whole")
        except AudioError as error:
            outcomes.add(str(error)[:37])
    assert outcomes == {"whole", "reading the recording takes too long;"}


def test_a_limit_that_is_just_kept_is_kept() -> None:
    data = good("wav")
    limits = dataclasses.replace(LIMITS, max_bytes=len(data), max_seconds=1.0, min_seconds=1.0)
    check_wave(read(data, 24_000, limits), limits)


def test_nan_in_a_later_block_is_found() -> None:
    wave = buzz(20.0)
    wave[-5] = np.nan
    with pytest.raises(AudioError, match="no numbers"):
        read(wav(wave.tobytes(), tag=3, bits=32), 24_000)
