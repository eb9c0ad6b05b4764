"""M4A, WebM, AAC and others: read by FFmpeg in a process of its own, refused when hostile."""

from __future__ import annotations

import collections
import io
import struct
import subprocess
import sys
import time
from functools import lru_cache
from pathlib import Path

import av
import numpy as np
import pytest

from nightingale.audio import decode
from nightingale.audio.decode import Decoder
from nightingale.audio.files import Limits, read
from nightingale.errors import AudioError, MissingPackageError
from tests.audio.corpus import _hurt, buzz

KINDS = {  # name: container, codec
    "m4a": ("ipod", "aac"),
    "alac": ("ipod", "alac"),
    "mp4 fragments": ("mp4", "aac"),
    "webm": ("webm", "libopus"),
    "matroska": ("matroska", "pcm_s16le"),
    "aac": ("adts", "aac"),
    "wma": ("asf", "wmav2"),
}


@lru_cache(maxsize=32)
def made(kind: str, seconds: float = 2.0, channels: int = 1) -> bytes:
    """A whole file of that kind, by PyAV itself."""
    container, codec = KINDS[kind]
    file = io.BytesIO()
    options = {"fflags": "+bitexact"}
    if kind == "mp4 fragments":
        options["movflags"] = "frag_keyframe+empty_moov+default_base_moof"
    wave = np.stack([buzz(seconds, 48_000, seed) for seed in range(channels)])
    with av.open(file, "w", format=container, options=options) as output:
        stream = output.add_stream(codec, rate=48_000)
        assert isinstance(stream, av.AudioStream)
        stream.bit_rate = 96_000
        stream.layout = "mono" if channels == 1 else "stereo"
        frame = av.AudioFrame.from_ndarray(wave, format="fltp", layout=stream.layout.name)
        frame.sample_rate = 48_000
        output.mux(stream.encode(frame))
        output.mux(stream.encode(None))
    return file.getvalue()


@pytest.mark.parametrize(
    "kind",
    [kind if kind in ("m4a", "webm", "aac") else pytest.param(kind, marks=pytest.mark.slow)
     for kind in KINDS],
)  # fmt: skip
def test_each_kind_sounds_like_what_was_written(kind: str) -> None:
    wave = read(made(kind), 24_000)
    expected = buzz(2.0, 24_000)
    assert abs(len(wave) - len(expected)) < 0.1 * 24_000
    lag = max(range(-3000, 3000, 10), key=lambda n: overlap(wave, expected, n))
    assert overlap(wave, expected, lag) > 0.95


def overlap(one: np.ndarray, two: np.ndarray, lag: int) -> float:
    one, two = one[max(lag, 0) :], two[max(-lag, 0) :]
    n = min(len(one), len(two))
    return float(np.corrcoef(one[:n:3], two[:n:3])[0, 1])


@pytest.mark.slow
def test_two_channels_are_averaged_and_lossless_is_lossless() -> None:
    wave = read(made("alac", 2.0, 2), 48_000)
    expected = (buzz(2.0, 48_000, 0) + buzz(2.0, 48_000, 1)) / 2
    assert len(wave) == len(expected)
    assert np.abs(wave - expected).max() < 2.0**-14


@pytest.mark.slow
def test_a_phone_video_gives_its_sound(tmp_path: Path) -> None:
    """The name says nothing, and the pictures are not looked at."""
    file = io.BytesIO()
    with av.open(file, "w", format="mp4") as output:
        pictures = output.add_stream("mpeg4", rate=10)
        sound = output.add_stream("aac", rate=48_000)
        assert isinstance(pictures, av.VideoStream)
        assert isinstance(sound, av.AudioStream)
        pictures.width, pictures.height, sound.layout = 64, 48, "mono"
        for _ in range(10):
            picture = av.VideoFrame.from_ndarray(np.zeros((48, 64, 3), np.uint8), format="rgb24")
            output.mux(pictures.encode(picture))
        frame = av.AudioFrame.from_ndarray(buzz(1.0, 48_000)[None], format="fltp", layout="mono")
        frame.sample_rate = 48_000
        for packets in (sound.encode(frame), sound.encode(None), pictures.encode(None)):
            output.mux(packets)
    (tmp_path / "video.txt").write_bytes(file.getvalue())
    assert abs(len(read(tmp_path / "video.txt", 24_000)) / 24_000 - 1) < 0.1


def boxed(data: bytes, name: bytes, at: int, number: int) -> bytes:
    """An MP4 with one 32-bit number of a box replaced."""
    place = data.index(name) + 4 + at
    return data[:place] + struct.pack(">I", number) + data[place + 4 :]


def bomb() -> bytes:
    """A fragment of 80,000,000 samples that take no byte: 2.9 GB of index in FFmpeg."""
    data = boxed(made("mp4 fragments"), b"trun", 0, 1)
    return boxed(data, b"trun", 4, 80_000_000)


def ten_hours() -> bytes:
    data = boxed(made("m4a"), b"mdhd", 16, 36_000 * 48_000)
    data = boxed(data, b"stts", 12, 36_000 * 48_000 // 94)
    return boxed(data, b"elst", 8, 36_000_000)


HOSTILE = {
    "truncated m4a": (made("m4a")[:-2000], "damaged|cut short"),
    "half of a webm": (made("webm")[: len(made("webm")) // 2], "cut short"),
    "half of fragments": (made("mp4 fragments")[:8000], "damaged|cut short"),
    "claims ten hours": (ten_hours(), "cut short: .* of 17"),
    "memory bomb": (bomb(), "more memory than a recording should"),
    "only pictures": (b"\0\0\0\x20ftypM4A \0\0\0\0M4A mp42isom" + b"\0\0\0\x08moov", "damaged"),
    "a playlist that claims to be mp4": (b"\0\0\0\x18ftyp\n#EXTM3U\nfile:///etc/passwd", "damaged"),
    "zeros behind an adts head": (b"\xff\xf1\x50\x80" + bytes(5000), "damaged"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_refused(name: str) -> None:
    data, reason = HOSTILE[name]
    start = time.monotonic()
    with pytest.raises(AudioError, match=reason):
        read(data, 24_000)
    assert time.monotonic() - start < 20


@pytest.mark.slow
@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        (Limits(max_seconds=0.5), "longer than 0.5 s"),
        (Limits(max_rate_hz=44_100), "48000 samples a second"),
        (Limits(max_channels=0), "1 to 0 can be read"),
        (Limits(max_work_seconds=0.01), "takes too long"),
    ],
)
def test_the_limits_of_every_recording_hold(limits: Limits, reason: str) -> None:
    with pytest.raises(AudioError, match=reason):
        read(made("m4a"), 24_000, limits)


@pytest.mark.slow
def test_no_process_is_left_behind() -> None:
    decoder = Decoder(made("m4a"), "mov", 60.0)
    child = decoder._child
    decoder.read(10)
    decoder.close()
    assert child.poll() is not None
    with pytest.raises(decode.DecodeError):
        Decoder(b"rubbish", "mov", 60.0)


def test_a_decoder_that_crashes_is_an_error_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if FFmpeg had been killed by what it read."""
    crash = [sys.executable, "-c", "import os; os.abort()"]
    real = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda _words, **pipes: real(crash, **pipes))
    with pytest.raises(AudioError, match="the decoder broke down"):
        read(made("m4a"), 24_000)


def test_without_pyav_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    data = made("m4a")
    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'nightingale-tts\[codecs\]'"):
        read(data, 24_000)


@pytest.mark.slow
def test_damaged_files_give_a_wave_or_an_audio_error_and_nothing_else() -> None:
    tally = collections.Counter[str]()
    for number in range(30):
        generator = np.random.default_rng((7, number))
        data = bytearray(made(list(KINDS)[number % len(KINDS)], 0.5))
        for _ in range(int(generator.integers(1, 6))):
            _hurt(data, generator)
        try:
            wave = read(bytes(data), 24_000)
            assert np.isfinite(wave).all()
            tally["read"] += 1
        except AudioError:
            tally["refused"] += 1
    print(dict(tally))
    assert min(tally["read"], tally["refused"]) >= 4
