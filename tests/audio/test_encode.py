"""Every format, opened by programs that are not ours: sox and FFmpeg."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import sys
import threading
import tracemalloc
import wave
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import soundfile
import soxr

from nightingale.audio.coders import Wave, to_int16
from nightingale.audio.encode import FORMATS, encode, encode_whole, format_of, write
from nightingale.audio.telephony import to_alaw, to_mulaw
from nightingale.errors import MissingPackageError, OptionError, SpeechError

N = 48_123  # 2.005 seconds, no multiple of anything
AAC_FRAME = 1024  # also what it puts in front

# What an independent decoder is told about streams that do not tell it themselves.
RAW = {"pcm": "s16le", "mulaw": "mulaw", "alaw": "alaw"}
SOX = {"wav": "wav", "flac": "flac", "mp3": "mp3", "pcm": "s16", "mulaw": "ul", "alaw": "al"}

CASES = [  # format, rate, least signal to noise in dB
    ("wav", 24_000, 80),
    ("wav", 44_100, 80),
    ("wav", 8_000, 80),
    ("wav", 12_345, 80),
    ("flac", 24_000, 80),
    ("flac", 16_000, 80),
    ("pcm", 24_000, 80),
    ("pcm", 48_000, 80),
    ("mulaw", 8_000, 36),
    ("mulaw", 16_000, 36),
    ("alaw", 8_000, 36),
    ("mp3", 24_000, 24),
    ("mp3", 44_100, 28),
    ("opus", 24_000, 34),
    ("opus", 48_000, 34),
    ("aac", 24_000, 25),
    ("aac", 48_000, 25),
]


def tone(n: int = N, hz: float = 440.0, seed: int = 3) -> Wave:
    """Three harmonics that swell, and a little noise: below 4 kHz, so that every rate holds it."""
    t = np.arange(n) / 24_000
    harmonics = sum(np.sin(2 * np.pi * hz * k * t) / k for k in (1, 2, 3))
    noise = np.random.default_rng(seed).normal(0, 1e-4, n)
    return (0.3 * harmonics * (0.6 + 0.4 * np.sin(2 * np.pi * 1.5 * t)) + noise).astype(np.float32)


def pieces(samples: Wave, *sizes: int) -> Iterator[Wave]:
    """Cut by the sizes, over and over."""
    at = number = 0
    while at < len(samples):
        size = sizes[number % len(sizes)]
        yield samples[at : at + size]
        at, number = at + size, number + 1


def run(tool: str, *arguments: str | Path, data: bytes | None = None) -> bytes:
    if shutil.which(tool) is None:
        pytest.fail(f"no {tool} here: apt-get install -y sox libsox-fmt-all ffmpeg")
    done = subprocess.run([tool, *arguments], input=data, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


def by_ffmpeg(format_: str, rate_hz: int, data: bytes | Path) -> Wave:
    """Decode a file, or a pipe if it is bytes, at the file's own rate."""
    raw = ["-f", RAW[format_], "-ar", str(rate_hz)] if format_ in RAW else []
    source, piped = ("-", data) if isinstance(data, bytes) else (data, None)
    quiet = ("-v", "error", "-nostdin") if piped is None else ("-v", "error")
    out = run("ffmpeg", *quiet, *raw, "-i", source, "-f", "f32le", "-", data=piped)
    return np.frombuffer(out, "<f4")


def by_sox(format_: str, rate_hz: int, data: bytes) -> Wave:
    raw = ["-r", str(rate_hz)] if format_ in RAW else []
    out = run("sox", "-D", "-t", SOX[format_], *raw, "-", "-t", "f32", "-", data=data)
    return np.frombuffer(out, "<f4")


def snr_db(wanted: Wave, heard: Wave) -> float:
    """After the best shift: a codec may put silence in front."""
    n = 1 << (len(wanted) + len(heard)).bit_length()
    correlation = np.fft.irfft(np.fft.rfft(heard, n) * np.conj(np.fft.rfft(wanted, n)))
    shift = int(correlation.argmax())
    assert shift < 3000, "the sound begins where it should"
    both = min(len(wanted), len(heard) - shift)
    a, b = wanted[:both].astype(np.float64), heard[shift : shift + both].astype(np.float64)
    return float(10 * np.log10((a**2).sum() / ((a - b) ** 2).sum()))


def expected(rate_hz: int) -> Wave:
    return soxr.resample(tone(), 24_000, rate_hz)  # type: ignore[no-any-return]


@pytest.mark.slow
@pytest.mark.parametrize(("format_", "rate_hz", "least_db"), CASES)
def test_a_file_has_its_rate_its_length_and_its_sound(
    tmp_path: Path, format_: str, rate_hz: int, least_db: float
) -> None:
    path = tmp_path / f"clip{FORMATS[format_].suffixes[0]}"
    write(path, pieces(tone(), 960), rate_hz=rate_hz)
    if format_ not in RAW:
        shown = run("ffprobe", "-v", "error", "-show_entries", "stream=sample_rate", path)
        # Opus always says 48 kHz, whatever it was made from.
        assert f"sample_rate={48_000 if format_ == 'opus' else rate_hz}\n" in shown.decode()
    heard = by_ffmpeg(format_, rate_hz, path)
    n_wanted = int(N * rate_hz / 24_000 + 0.5)
    if format_ == "opus":
        n_wanted = N * 2
    if format_ == "aac":  # ADTS knows whole frames only, and one that warms up the decoder
        n_wanted = (-(-n_wanted // AAC_FRAME) + 1) * AAC_FRAME
    assert len(heard) == n_wanted
    wanted = expected(48_000 if format_ == "opus" else rate_hz)
    assert snr_db(wanted, heard) > least_db


@pytest.mark.slow
@pytest.mark.parametrize("format_", SOX)
def test_sox_hears_the_same_as_ffmpeg_also_from_a_pipe(format_: str) -> None:
    rate_hz = FORMATS[format_].rate_hz
    streamed = b"".join(encode(pieces(tone(), 960), format_))
    sox, ffmpeg = by_sox(format_, rate_hz, streamed), by_ffmpeg(format_, rate_hz, streamed)
    if format_ == "mp3":  # each strips as much of the decoder's own delay as it likes
        assert abs(len(sox) - N) < 4 * 576
        assert abs(len(ffmpeg) - N) < 4 * 576
        assert snr_db(expected(rate_hz), sox) > 20
    else:
        assert len(sox) == int(N * rate_hz / 24_000 + 0.5)
        assert np.abs(sox - ffmpeg).max() < 1e-6


@pytest.mark.slow
@pytest.mark.parametrize("rate_hz", [None, 48_000])
@pytest.mark.parametrize("format_", FORMATS)
def test_how_the_sound_is_cut_does_not_change_a_byte(format_: str, rate_hz: int | None) -> None:
    samples = tone(3_001)
    whole = b"".join(encode([samples], format_, rate_hz))
    for cut in (pieces(samples, 1), pieces(samples, 7, 960, 0, 1111)):
        assert b"".join(encode(cut, format_, rate_hz)) == whole


@pytest.mark.parametrize("reader", ["libsndfile", pytest.param("ffmpeg", marks=pytest.mark.slow)])
def test_lossless_formats_hold_the_same_samples(reader: str) -> None:
    pcm = np.frombuffer(encode_whole([tone()], "pcm"), "<i2")
    for format_ in ("wav", "flac"):
        data = encode_whole([tone()], format_)
        if reader == "ffmpeg":
            heard = by_ffmpeg(format_, 24_000, data)
        else:
            heard, _ = soundfile.read(io.BytesIO(data), dtype="float32")
        assert np.array_equal(heard * 32768, pcm)


def test_a_finished_wav_tells_its_length_and_a_streamed_one_leaves_it_open() -> None:
    whole = encode_whole([tone()], "wav")
    with wave.open(io.BytesIO(whole)) as file:
        assert (file.getnframes(), file.getframerate(), file.getsampwidth()) == (N, 24_000, 2)
    assert int.from_bytes(whole[4:8], "little") == len(whole) - 8
    streamed = b"".join(encode(pieces(tone(), 960), "wav"))
    assert streamed[4:8] == streamed[40:44] == b"\xff" * 4
    assert streamed[44:] == whole[44:]


def test_a_finished_flac_states_its_length(tmp_path: Path) -> None:
    path = tmp_path / "clip.flac"
    write(path, [tone()])
    assert soundfile.info(path).frames == N


@pytest.mark.slow
def test_ffprobe_reads_the_length_of_a_finished_flac(tmp_path: Path) -> None:
    path = tmp_path / "clip.flac"
    write(path, [tone()])
    shown = run("ffprobe", "-v", "error", "-show_entries", "stream=duration_ts", path).decode()
    assert f"duration_ts={N}\n" in shown


@pytest.mark.parametrize("format_", FORMATS)
def test_a_file_is_what_all_bytes_at_once_are(tmp_path: Path, format_: str) -> None:
    path = tmp_path / "clip"
    write(path, pieces(tone(9_001), 960), format_)
    assert path.read_bytes() == encode_whole([tone(9_001)], format_)


def test_samples_are_rounded_to_the_nearest_and_clipped() -> None:
    step = 1 / 32768
    table = [(0, 0), (1, 32767), (-1, -32768), (3, 32767), (-3, -32768), (0.5 * step, 0)]
    table += [(1.5 * step, 2), (-0.5 * step, 0), (-1.4 * step, -1), (0.25, 8192), (-0.25, -8192)]
    given = np.array([x for x, _ in table], np.float32)
    assert to_int16(given).tolist() == [pcm for _, pcm in table]


@pytest.mark.parametrize("format_", FORMATS)
def test_what_is_too_loud_is_clipped(format_: str) -> None:
    loud = 4 * tone(9_001)
    rate_hz = 24_000
    clipped = encode_whole([np.clip(loud, -1, 1)], format_, rate_hz)
    assert encode_whole([loud], format_, rate_hz) == clipped


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_is_refused_and_leaves_no_file(tmp_path: Path, bad: float) -> None:
    samples = tone(2_000)
    samples[77] = bad
    path = tmp_path / "clip.wav"
    path.write_bytes(b"older")
    with pytest.raises(SpeechError, match=f"sample 77 of chunk 1 is {bad}"):
        write(path, [tone(2_000), samples])
    assert [file.name for file in tmp_path.iterdir()] == ["clip.wav"]
    assert path.read_bytes() == b"older"


@pytest.mark.parametrize("format_", FORMATS)
def test_no_samples_are_an_error(format_: str) -> None:
    for nothing in ([], [tone(0), tone(0)]):
        with pytest.raises(SpeechError, match="no sound"):
            encode_whole(nothing, format_)


@pytest.mark.slow
@pytest.mark.parametrize("format_", FORMATS)
def test_one_sample_is_enough_for_a_file(format_: str) -> None:
    one = encode_whole([np.array([0.5], np.float32)], format_, 24_000)
    n_heard = len(by_ffmpeg(format_, 24_000, one))
    if format_ == "mp3":  # the end of a frame is cut off in files only
        assert 1 <= n_heard <= 2 * 576
    else:
        assert n_heard == {"opus": 2, "aac": 2 * AAC_FRAME}.get(format_, 1)


REFUSED = [
    ("ogg", None, "no format 'ogg'; there are wav, flac, mp3, opus, aac, pcm, mulaw, alaw"),
    ("wav", 3_999, "wav cannot have 3999 Hz; it can have any from 4000 to 192000"),
    ("wav", 0, "cannot have 0 Hz"),
    ("mulaw", -8000, "cannot have -8000 Hz"),
    ("opus", 44_100, "opus cannot have 44100 Hz; it can have 8000, 12000, 16000, 24000, 48000"),
    ("mp3", 96_000, "mp3 cannot have 96000 Hz; it can have 8000, 11025, "),
    ("aac", 4_000, "aac cannot have 4000 Hz"),
]


@pytest.mark.parametrize(("format_", "rate_hz", "message"), REFUSED)
def test_what_cannot_be_is_refused_before_anything_is_sent(
    format_: str, rate_hz: int | None, message: str
) -> None:
    with pytest.raises(OptionError, match=message):
        encode([], format_, rate_hz)


def test_every_rate_of_every_format_works() -> None:
    samples = tone(1_200)
    for name, format_ in FORMATS.items():
        for rate_hz in format_.rates_hz if len(format_.rates_hz) < 20 else (4_000, 192_000):
            assert encode_whole([samples], name, rate_hz), (name, rate_hz)


def test_a_name_tells_its_format() -> None:
    for name in ("a.wav", "b.OGG", "c.mp3", "d.ul", "e.raw"):
        assert format_of(Path(name)) == {"o": "opus", "u": "mulaw", "r": "pcm"}.get(
            name.lower()[2], name[2:]
        )
    with pytest.raises(OptionError, match=r"'speech.doc' does not say .* \.wav, \.flac"):
        format_of(Path("speech.doc"))


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"nowhere/a.wav cannot be written: No such file"):
        write(tmp_path / "nowhere/a.wav", [tone()])
    with pytest.raises(OptionError, match="cannot be written: Is a directory"):
        write(tmp_path, [tone()], "wav")


def test_a_pipe_gets_the_stream_at_once(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    is_header_read = threading.Event()

    def chunks() -> Iterator[Wave]:
        assert is_header_read.wait(10), "the header is sent before the first sound is asked for"
        yield tone()

    writer = threading.Thread(target=write, args=(pipe, chunks(), "wav"))
    writer.start()
    with pipe.open("rb") as reader:
        header = reader.read(44)
        is_header_read.set()
        heard = header + reader.read()
    writer.join()
    assert heard == b"".join(encode([tone()], "wav"))
    assert pipe.is_fifo()


@pytest.mark.parametrize(("rate_hz", "least_db"), [(8_000, 80), (16_000, 80), (44_100, 80)])
def test_a_changed_rate_keeps_what_fits_and_drops_what_does_not(
    rate_hz: int, least_db: float
) -> None:
    """Against the formula of the tone itself; 6 kHz fits into 16 kHz but not into 8."""
    t = np.arange(24_000) / 24_000
    low, high = np.sin(2 * np.pi * 1_000 * t), np.sin(2 * np.pi * 6_000 * t)
    pcm = encode_whole([(0.4 * low + 0.4 * high).astype(np.float32)], "pcm", rate_hz)
    heard = np.frombuffer(pcm, "<i2") / 32768
    assert len(heard) == rate_hz
    t = np.arange(rate_hz) / rate_hz
    wanted = 0.4 * np.sin(2 * np.pi * 1_000 * t)
    if rate_hz > 12_000:
        wanted += 0.4 * np.sin(2 * np.pi * 6_000 * t)
    middle = slice(rate_hz // 4, -rate_hz // 4)  # a tone that is cut off rings at its ends
    error = (heard - wanted)[middle]
    assert 10 * np.log10((wanted[middle] ** 2).mean() / (error**2).mean()) > least_db


FIRST_SOUND_MS = {"wav": 10, "pcm": 10, "mp3": 60, "opus": 60, "aac": 100, "flac": 200}
FIRST_SOUND_MS |= {"mulaw": 90, "alaw": 90}  # the resampler looks ahead


@pytest.mark.parametrize("format_", FORMATS)
def test_sound_goes_out_early(format_: str) -> None:
    n_taken = n_bytes = 0

    def chunks() -> Iterator[Wave]:
        nonlocal n_taken
        for chunk in pieces(tone(24_000), 240):  # 10 ms each
            n_taken += 1
            yield chunk

    for piece in encode(chunks(), format_):
        n_bytes += len(piece)
        if n_bytes > 150:  # more than a header
            break
    assert n_taken * 10 <= FIRST_SOUND_MS[format_]


@pytest.mark.slow
@pytest.mark.parametrize("format_", FORMATS)
def test_memory_does_not_grow_with_the_sound(format_: str) -> None:
    chunk = tone(2_400)
    stream = encode((chunk for _ in range(120)), format_, 48_000)  # 12 seconds: 1.2 MB of PCM
    next(stream)
    tracemalloc.start()
    for _ in stream:
        pass
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 400_000


def test_without_pyav_only_opus_and_aac_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "av", None)
    for format_ in FORMATS:
        if format_ in ("opus", "aac"):
            with pytest.raises(MissingPackageError, match=r"pip install 'nightingale-tts\[codecs"):
                encode([tone()], format_)
        else:
            assert encode_whole([tone()], format_)


@pytest.mark.slow
@pytest.mark.parametrize(("law", "name"), [(to_mulaw, "mulaw"), (to_alaw, "alaw")])
def test_telephone_codes_are_those_of_the_standard(law: type, name: str) -> None:
    """All 65,536 samples. FFmpeg takes the nearest level, which at the edge of a segment is not
    always the one that G.711 asks for: then it is the neighbour."""
    every = np.arange(-32768, 32768).astype(np.int16)
    raw = ("-v", "error", "-ar", "8000", "-f")
    levels = np.frombuffer(
        run("ffmpeg", *raw, name, "-i", "-", "-f", "s16le", "-", data=bytes(range(256))), "<i2"
    )
    sox = run("sox", "-t", SOX[name], "-r", "8000", "-", "-t", "s16", "-", data=bytes(range(256)))
    assert sox == levels.tobytes()
    codes = law(every)
    theirs = run("ffmpeg", *raw, "s16le", "-i", "-", "-f", name, "-", data=every.tobytes())
    place = np.argsort(np.argsort(levels, kind="stable"))
    apart = np.abs(place[codes] - place[np.frombuffer(theirs, np.uint8)])
    assert apart.max() <= (2 if name == "mulaw" else 1)  # mu-law has two zeros
    assert (apart == 0).mean() > 0.98
    assert (np.diff(levels[codes].astype(int)) >= 0).all()
    again = law(levels)
    assert np.array_equal(levels[again], levels)
    assert np.array_equal(law(every[32769:]) ^ 0x80, law(-every[32769:]))


def test_content_types_are_what_clients_expect() -> None:
    assert {name: format_.content_type for name, format_ in FORMATS.items()} == {
        "wav": "audio/wav",
        "flac": "audio/flac",
        "mp3": "audio/mpeg",
        "opus": "audio/ogg",
        "aac": "audio/aac",
        "pcm": "audio/pcm",
        "mulaw": "audio/PCMU",
        "alaw": "audio/PCMA",
    }
