"""Recordings in: bytes of unknown origin become one bounded, finite mono wave.

The only door for soundfile. Decoding a stranger's file is the riskiest thing that we do, so the
first bytes decide: five kinds are read by libsndfile, some more by FFmpeg in another process
(`decode`), and nothing else. Everything is read in blocks, and what a header claims is
neither believed nor allocated. Knows nothing of voices or models.
"""

from __future__ import annotations

import functools
import io
import math
import os
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import soundfile
import soxr
from numpy.typing import NDArray

from nightingale.audio.decode import DecodeError, Decoder
from nightingale.errors import AudioError

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer as Buffer

Wave = NDArray[np.float32]
Readable: TypeAlias = soundfile.SoundFile | Decoder

READABLE = "WAV, AIFF, FLAC, OGG (Vorbis or Opus), MP3, M4A/MP4, AAC, WebM, WMA, AMR and CAF"
_CONVERT = f"{READABLE} can be read; convert it with `ffmpeg -i IN out.wav`"

_CODECS = (
    *("PCM_S8", "PCM_U8", "PCM_16", "PCM_24", "PCM_32", "FLOAT", "DOUBLE", "ULAW", "ALAW"),
    *("VORBIS", "OPUS", "MPEG_LAYER_I", "MPEG_LAYER_II", "MPEG_LAYER_III"),
)
_CHUNKED = (b"RIFFWAVE", b"RIFXWAVE", b"RF64WAVE", b"FORMAIFF", b"FORMAIFC")
_BY_FFMPEG = (  # where to look, what stands there, the demuxer for it
    (4, b"ftyp", "mov"),
    (0, b"\x1aE\xdf\xa3", "matroska"),
    (0, b"\x30\x26\xb2\x75", "asf"),
    (0, b"#!AMR", "amr"),
    (0, b"caff", "caf"),
)
_BLOCK_SAMPLES = 2**18  # of all channels together: 1 MB as float32
_OPEN_SIZE = 0x7FFF_0000  # writers into a pipe put a size from here on: they could not know it
_SLACK = 16  # bytes; some writers miscount by a chunk header
_UNKNOWN_FRAMES = 2**62  # what libsndfile says when a file does not tell its length
_MAX_PEAK = 16.0  # 24 dB over full scale: not a loud recording but one of another scale


@dataclass(frozen=True, slots=True)
class Limits:
    """What is read at most, so that no file costs more than this in memory or time."""

    max_bytes: int = 128 * 2**20
    min_seconds: float = 0.1
    max_seconds: float = 300.0
    min_rate_hz: int = 1_000
    max_rate_hz: int = 192_000
    max_channels: int = 8
    max_samples: int = 300 * 48_000 * 2  # decoded, of all channels together
    max_work_seconds: float = 20.0


LIMITS = Limits()


def read(source: Path | str | bytes, rate_hz: int, limits: Limits = LIMITS) -> Wave:
    """A recording as mono float32 at `rate_hz`, channels averaged, rate changed by soxr HQ."""
    deadline = time.monotonic() + limits.max_work_seconds
    data = source if isinstance(source, bytes) else _slurp(Path(source), limits)
    if len(data) > limits.max_bytes:
        raise AudioError(
            f"the recording has more than {limits.max_bytes >> 20} MB; cut a shorter piece of it"
        )
    data, demuxer = _check_kind(data)
    with _opened(data, demuxer, deadline) as file:
        _check_header(file, limits)
        return _resampled(_blocks(file, limits, deadline), file.samplerate, rate_hz)


def resample(wave: Wave, from_hz: int, to_hz: int) -> Wave:
    """Change the rate of a whole wave by soxr HQ; a started sample counts as one."""
    return _resampled(iter([wave]), from_hz, to_hz)


def _slurp(path: Path, limits: Limits) -> bytes:
    try:
        with open(path, "rb", opener=_without_waiting) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise AudioError(f"{path} is a device or a pipe; give a file")
            return file.read(limits.max_bytes + 1)
    except IsADirectoryError as error:
        raise AudioError(f"{path} is a folder; give one recording") from error
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
        reason = getattr(error, "strerror", None) or error
        raise AudioError(f"{path} cannot be opened: {reason}") from error


def _without_waiting(path: str, flags: int) -> int:
    """Opening a pipe that nobody writes into would wait for ever."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def _check_kind(data: bytes) -> tuple[bytes, str | None]:
    """The data without an ID3 tag in front, and FFmpeg's demuxer if it is for FFmpeg to read."""
    if not data:
        raise AudioError("the recording is an empty file; record or copy it again")
    if data[:3] == b"ID3" and len(data) >= 10:
        n_tag = functools.reduce(lambda size, byte: size << 7 | byte & 127, data[6:10], 0)
        data = data[10 + n_tag :]
    for at, mark, demuxer in _BY_FFMPEG:
        if data[at : at + len(mark)] == mark:
            return data, demuxer
    if data[:1] == b"\xff" and data[1:2] and data[1] & 0xF6 == 0xF0:  # ADTS: layer 0
        return data, "aac"
    is_chunked = data[:4] + data[8:12] in _CHUNKED
    is_mpeg = data[:1] == b"\xff" and data[1:2] >= b"\xe0"
    if not (is_chunked or is_mpeg or data[:4] in (b"fLaC", b"OggS")):
        raise AudioError(
            f"the recording begins with {data[:12]!r}, which is no kind we know; {_CONVERT}"
        )
    if is_chunked:
        n_claimed = 8 + int.from_bytes(data[4:8], "little" if data[:4] == b"RIFF" else "big")
        if len(data) + _SLACK < n_claimed < _OPEN_SIZE:
            raise AudioError(
                f"the recording is cut short: {len(data)} of {n_claimed} bytes are there; "
                "copy it again"
            )
    return data, None


class _Tape(io.BytesIO):
    """Stops at its beginning, which damaged files rewind beyond, and ends when the time is up."""

    def __init__(self, data: bytes, deadline: float) -> None:
        super().__init__(data)
        self._deadline = deadline

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        starts = (0, self.tell(), self.getbuffer().nbytes)
        return super().seek(min(max(0, starts[whence] + offset), 2**62))

    def readinto(self, buffer: Buffer, /) -> int:
        return 0 if time.monotonic() > self._deadline else super().readinto(buffer)


class _Forward(soundfile.SoundFile):  # type: ignore[misc]
    """Says that it cannot seek, or soundfile would seek behind every block and decoders restart."""

    def seekable(self) -> bool:
        return False


@contextmanager
def _opened(data: bytes, demuxer: str | None, deadline: float) -> Iterator[Readable]:
    try:
        if demuxer is not None:
            with Decoder(data, demuxer, deadline - time.monotonic()) as decoder:
                yield decoder
        else:
            with _Forward(_Tape(data, deadline)) as file:
                yield file
    except (soundfile.SoundFileError, DecodeError) as error:
        _check_time(deadline)
        reason = getattr(error, "error_string", str(error)).rstrip(".")
        raise AudioError(f"the recording is damaged ({reason}); {_CONVERT}") from error


def _check_time(deadline: float) -> None:
    if time.monotonic() > deadline:
        raise AudioError(f"reading the recording takes too long; {_CONVERT}")


def _check_header(file: Readable, limits: Limits) -> None:
    if isinstance(file, soundfile.SoundFile) and file.subtype not in _CODECS:
        raise AudioError(
            f"the recording holds {file.subtype_info}, which we do not read; {_CONVERT}"
        )
    if not limits.min_rate_hz <= file.samplerate <= limits.max_rate_hz:
        raise AudioError(
            f"the recording has {file.samplerate} samples a second, but "
            f"{limits.min_rate_hz} to {limits.max_rate_hz} can be read; resample it"
        )
    if not 1 <= file.channels <= limits.max_channels:
        raise AudioError(
            f"the recording has {file.channels} channels, but 1 to {limits.max_channels} can be "
            "read; mix it down"
        )


def _blocks(file: Readable, limits: Limits, deadline: float) -> Iterator[Wave]:
    """What can be decoded, mono, block by block; ends with an error if it is not a whole one."""
    rate_hz, n_frames = file.samplerate, 0
    while True:
        block = file.read(_BLOCK_SAMPLES // file.channels, dtype="float32", always_2d=True)
        _check_time(deadline)
        if not len(block):
            break
        n_frames += len(block)
        _check_block(block)
        if n_frames > limits.max_seconds * rate_hz:
            raise AudioError(f"the recording is longer than {limits.max_seconds:g} s; cut it")
        if n_frames * file.channels > limits.max_samples:
            raise AudioError(
                f"the recording has more than {limits.max_samples:,} samples in its "
                f"{file.channels} channels; cut it, or save it as 48 kHz mono"
            )
        yield block.T.mean(axis=0) if file.channels > 1 else block[:, 0]
    if n_frames < file.frames < _UNKNOWN_FRAMES:
        raise AudioError(
            f"the recording is cut short: {n_frames} of {file.frames} samples can be decoded; "
            "copy it again"
        )
    if n_frames < limits.min_seconds * rate_hz:
        raise AudioError(
            f"the recording has {n_frames} samples, less than {limits.min_seconds:g} s of sound; "
            "record more"
        )


def _check_block(block: Wave) -> None:
    peak = float(np.abs(block).max())  # NaN wins over everything
    if not np.isfinite(peak):
        raise AudioError(
            "the recording holds samples that are no numbers (NaN or Inf); export it anew"
        )
    if peak > _MAX_PEAK:
        raise AudioError(
            f"the recording has samples of {peak:g}, but full scale is 1; export it as 16-bit WAV"
        )


def _resampled(blocks: Iterator[Wave], from_hz: int, to_hz: int) -> Wave:
    """Soxr in stream mode gives, to the bit, what it gives for the whole at once."""
    if from_hz == to_hz:
        return np.concatenate(list(blocks))
    stream = soxr.ResampleStream(from_hz, to_hz, num_channels=1, dtype="float32", quality="HQ")
    n_in, out = 0, []
    for block in blocks:
        n_in += len(block)
        out.append(stream.resample_chunk(block))
    out.append(stream.resample_chunk(np.zeros(0, np.float32), last=True))
    n_out = math.ceil(n_in * (to_hz / from_hz))
    wave = np.concatenate(out)[:n_out]
    return np.pad(wave, (0, n_out - len(wave)))
