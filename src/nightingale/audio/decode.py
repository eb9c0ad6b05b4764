"""Recordings that libsndfile does not read (M4A, WebM, AAC ...), decoded by FFmpeg through PyAV.

FFmpeg is large and strangers' files are hostile, so it runs in a process of its own, with bounded
memory and time: a crash or a bomb there is an error here. That process gets the bytes on standard
input, never a name: the demuxer is chosen by `files` from the first bytes, is none that follows
references (playlists), and may open nothing else. It writes one header and then samples, and waits
whenever its reader does; how much is too much is the reader's to say.
"""

from __future__ import annotations

import io
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from threading import Timer
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from nightingale.audio.coders import has_pyav, pyav
from nightingale.errors import MissingPackageError

_HEADER = struct.Struct("<IIq")  # samples a second, channels, frames that the file claims (or -1)
_MAX_MEMORY = 2**30  # of the process; a bomb in a kilobyte of MP4 would take four times that
_MAX_PACKET = 2**20  # bytes; a second of sound in eight channels has less
_SLACK_S = 0.25  # by which honest files claim too much: priming, padding, rounded clocks
_TELL_LENGTH = ("mov", "matroska", "asf", "caf")  # of the others FFmpeg only guesses
_CODECS = (
    *("aac", "alac", "mp3", "mp3float", "opus", "libopus", "vorbis", "flac", "ac3", "eac3"),
    *("wmav1", "wmav2", "wmapro", "amrnb", "amrwb"),
    *("pcm_u8", "pcm_s16le", "pcm_s16be", "pcm_s24le", "pcm_s24be", "pcm_s32le", "pcm_s32be"),
    *("pcm_f32le", "pcm_f32be", "pcm_f64le", "pcm_f64be", "pcm_mulaw", "pcm_alaw"),
)


class DecodeError(Exception):
    """FFmpeg cannot read it, or must not go on; says why in a few words."""


class Decoder:
    """An open recording, with the names that soundfile gives them: reads forward, once."""

    def __init__(self, data: bytes, demuxer: str, max_seconds: float) -> None:
        if not has_pyav():
            raise MissingPackageError(
                "reading this recording needs PyAV; install it with "
                "pip install 'nightingale-tts[codecs]', or convert it: `ffmpeg -i IN out.wav`"
            )
        self._child = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__, demuxer, str(max(1, round(max_seconds)))],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip
        self._timer = Timer(max(0.0, max_seconds), self._child.kill)
        self._timer.start()
        assert self._child.stdin is not None
        with suppress(BrokenPipeError, OSError):  # it has died: why is seen at the first read
            self._child.stdin.write(data)
            self._child.stdin.close()
        try:
            header = self._take(_HEADER.size)
            if len(header) < _HEADER.size:
                raise DecodeError("there is no sound in it")
            self.samplerate, self.channels, self.frames = _HEADER.unpack(header)
        except BaseException:
            self.close()
            raise

    def read(self, n_frames: int, **_kind: Any) -> NDArray[np.float32]:
        """(at most n_frames, channels); none at the end."""
        data = self._take(n_frames * self.channels * 4)
        return np.frombuffer(data, "<f4").reshape(-1, self.channels)

    def _take(self, n_bytes: int) -> bytes:
        assert self._child.stdout is not None
        data = self._child.stdout.read(n_bytes)
        if len(data) < n_bytes and self._child.wait() != 0:
            assert self._child.stderr is not None
            reason = self._child.stderr.read(2000).decode(errors="replace").strip()
            raise DecodeError(reason.splitlines()[-1] if reason else "the decoder broke down")
        return data

    def close(self) -> None:
        self._timer.cancel()
        self._child.kill()
        with suppress(OSError):
            self._child.__exit__(None, None, None)  # closes the pipes, waits

    def __enter__(self) -> Decoder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self.close()


# What follows runs in the other process.


def main() -> None:
    """Standard input in, samples out."""
    _limit(int(sys.argv[2]))
    data = sys.stdin.buffer.read()
    try:
        for piece in decoded(data, sys.argv[1]):
            sys.stdout.buffer.write(piece)
        sys.stdout.buffer.flush()
    except DecodeError as error:
        sys.exit(str(error))
    except MemoryError:
        sys.exit("it needs more memory than a recording should")
    except BrokenPipeError:
        sys.stderr.close()  # the reader has had enough


def _limit(seconds: int) -> None:
    try:
        import resource  # noqa: PLC0415
    except ImportError:  # Windows: the reader's clock is all there is
        return
    for what, most in ((resource.RLIMIT_AS, _MAX_MEMORY), (resource.RLIMIT_CPU, seconds + 1)):
        with suppress(ValueError, OSError):
            resource.setrlimit(what, (most, most))
    with suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def decoded(data: bytes, demuxer: str) -> Iterator[bytes]:
    """The header, then interleaved float32."""
    av = pyav()
    options = {
        "protocol_whitelist": "",
        "format_whitelist": demuxer,
        "codec_whitelist": ",".join(_CODECS),
    }
    try:
        with av.open(
            io.BytesIO(data), "r", format=demuxer, options=options, metadata_errors="replace"
        ) as container:
            yield from _samples(container, claims=demuxer in _TELL_LENGTH)
    except (av.error.FFmpegError, ValueError) as error:
        if isinstance(error, MemoryError):
            raise MemoryError from error
        reason = getattr(error, "strerror", None) or str(error)
        raise DecodeError(reason) from error


def _samples(container: Any, *, claims: bool) -> Iterator[bytes]:
    if not container.streams.audio:
        raise DecodeError("there is no sound in it")
    stream = container.streams.audio[0]
    if stream.codec_context is None or stream.codec_context.codec.name not in _CODECS:
        raise DecodeError("it holds a kind of sound that we do not read")
    form: tuple[int, int] | None = None
    for packet in container.demux(stream):
        if packet.size > _MAX_PACKET:
            raise DecodeError("it holds a packet larger than any of sound")
        for frame in packet.decode():
            found = frame.sample_rate, frame.layout.nb_channels
            if form is None:
                form = found
                yield _HEADER.pack(*form, _claimed(container, stream, form[0]) if claims else -1)
            if found != form:
                raise DecodeError("its rate or its channels change on the way")
            yield _interleaved(frame)


def _claimed(container: Any, stream: Any, rate_hz: int) -> int:
    """How many frames there should be at least; -1 if the file does not say."""
    if stream.duration and stream.time_base:
        seconds = float(stream.duration * stream.time_base)
    elif container.duration:
        seconds = container.duration / 1e6
    else:
        return -1
    return min(max(-1, int((seconds - _SLACK_S) * rate_hz)), 2**61)


def _interleaved(frame: Any) -> bytes:
    wave = frame.to_ndarray()  # (channels, N), or (1, N * channels)
    if frame.format.is_packed:
        wave = wave.reshape(-1, frame.layout.nb_channels).T
    if wave.dtype.kind == "u":
        wave = wave.astype(np.float32) / 128 - 1
    elif wave.dtype.kind == "i":
        wave = wave.astype(np.float64) / 2.0 ** (8 * wave.dtype.itemsize - 1)
    return np.ascontiguousarray(wave.T, "<f4").tobytes()


if __name__ == "__main__":
    main()
