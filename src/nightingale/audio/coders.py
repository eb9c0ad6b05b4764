"""Samples in, bytes out: a coder for each kind of stream, fed piece by piece.

WAV, PCM and G.711 are written here; FLAC and MP3 by libsndfile; Opus and AAC by FFmpeg through PyAV
(this is its only door), which is an extra. Whatever the pieces, the bytes are the same: nothing in
them comes from a clock or from rng. Knows nothing of rates other than its own.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from fractions import Fraction
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Protocol

import numpy as np
import soundfile
from numpy.typing import NDArray

from nightingale.errors import MissingPackageError

Wave = NDArray[np.float32]
Patch = tuple[int, bytes]  # where in the finished bytes, and what stands there

_OPEN_SIZE = 0xFFFF_FFFF  # "until the stream ends", for every player that reads from a pipe


class Coder(Protocol):
    """One stream, used once: start, feed as often as needed, finish; close in any case."""

    def start(self) -> bytes:
        """What can be sent before there is sound."""

    def feed(self, samples: Wave) -> bytes:
        """Finite samples between -1 and 1 -> the bytes that are ready, maybe none."""

    def finish(self) -> bytes:
        """The rest."""

    def patches(self) -> list[Patch]:
        """After `finish`: what could not be known before the end, for those who can go back."""

    def close(self) -> None:
        """Let go of everything; also in the middle."""


def to_int16(samples: Wave) -> NDArray[np.int16]:
    """Full scale is 32768: nearest, ties to even, clipped at the top, no dither."""
    return np.clip(np.rint(samples * np.float32(32768)), -32768, 32767).astype("<i2")


class Raw:
    """Nothing but samples."""

    def __init__(self, pack: Callable[[NDArray[np.int16]], NDArray[Any]] = lambda pcm: pcm) -> None:
        self._pack = pack

    def start(self) -> bytes:
        return b""

    def feed(self, samples: Wave) -> bytes:
        return self._pack(to_int16(samples)).tobytes()

    def finish(self) -> bytes:
        return b""

    def patches(self) -> list[Patch]:
        return []

    def close(self) -> None:
        pass


class Wav(Raw):
    """16-bit PCM behind one header."""

    def __init__(self, rate_hz: int) -> None:
        super().__init__()
        self._rate_hz = rate_hz
        self._n_bytes = 0

    def start(self) -> bytes:
        return self._header(_OPEN_SIZE, _OPEN_SIZE)

    def feed(self, samples: Wave) -> bytes:
        data = super().feed(samples)
        self._n_bytes += len(data)
        return data

    def patches(self) -> list[Patch]:
        # Over 4 GB the sizes do not fit, and stay open.
        sizes = (min(n, _OPEN_SIZE) for n in (self._n_bytes + 36, self._n_bytes))
        return [(0, self._header(*sizes))]

    def _header(self, n_riff_bytes: int, n_data_bytes: int) -> bytes:
        rate_hz = self._rate_hz
        form = struct.pack("<IHHIIHH", 16, 1, 1, rate_hz, rate_hz * 2, 2, 16)
        sizes = struct.pack("<I", n_riff_bytes), struct.pack("<I", n_data_bytes)
        return b"RIFF" + sizes[0] + b"WAVEfmt " + form + b"data" + sizes[1]


class _Tape:
    """A file that is sent away while it is written; what is written behind itself is a patch."""

    def __init__(self) -> None:
        self._fresh = bytearray()
        self._n_sent = 0
        self._at = 0
        self.patches = list[Patch]()

    def write(self, data: Any) -> int:
        piece = bytes(data)
        if self._at == self._end:
            self._fresh += piece
        else:
            assert self._at + len(piece) <= self._end
            self.patches.append((self._at, piece))
        self._at += len(piece)
        return len(piece)

    def seek(self, offset: int, whence: int = 0) -> int:
        self._at = offset + (0, self._at, self._end)[whence]
        return self._at

    def tell(self) -> int:
        return self._at

    def take(self) -> bytes:
        taken = bytes(self._fresh)
        self._n_sent += len(taken)
        self._fresh.clear()
        return taken

    @property
    def _end(self) -> int:
        return self._n_sent + len(self._fresh)


class Sndfile:
    """What libsndfile writes: FLAC (lossless, 16 bit) and MP3."""

    def __init__(self, rate_hz: int, kind: str, **options: Any) -> None:
        self._tape = _Tape()
        self._is_exact = kind == "FLAC"
        self._file = soundfile.SoundFile(
            self._tape, "w", samplerate=rate_hz, channels=1, format=kind, **options
        )

    def start(self) -> bytes:
        return self._tape.take()

    def feed(self, samples: Wave) -> bytes:
        self._file.write(to_int16(samples) if self._is_exact else samples)
        return self._tape.take()

    def finish(self) -> bytes:
        self._file.close()
        return self._tape.take()

    def patches(self) -> list[Patch]:
        return self._tape.patches

    def close(self) -> None:
        self._file.close()


class Ffmpeg:
    """What FFmpeg writes, by way of PyAV: Opus in Ogg, AAC in ADTS."""

    def __init__(self, rate_hz: int, container: str, codec: str, bit_rate: int) -> None:
        av = pyav()
        self._tape = _Tape()
        self._frame_of = av.AudioFrame.from_ndarray
        self._rate_hz = rate_hz
        # bitexact: no version, date or random serial number; a page of Ogg for every 20 ms.
        options = {"fflags": "+bitexact"}
        if container == "ogg":
            options["page_duration"] = "20000"
        self._output = av.open(_WriteOnly(self._tape), "w", format=container, options=options)
        self._stream = self._output.add_stream(codec, rate=rate_hz, options={"flags": "+bitexact"})
        self._stream.bit_rate = bit_rate
        self._context = self._stream.codec_context
        self._context.layout = "mono"
        self._context.format = "flt" if container == "ogg" else "fltp"
        self._rest = np.zeros(0, np.float32)
        self._n_fed = 0

    def start(self) -> bytes:
        self._output.start_encoding()
        return self._tape.take()

    def feed(self, samples: Wave) -> bytes:
        self._rest = np.concatenate((self._rest, samples))
        for frame in self._whole_frames():
            self._encode(frame)
        return self._tape.take()

    def finish(self) -> bytes:
        if len(self._rest):
            self._encode(self._rest)
        if self._n_fed:
            self._output.mux(self._stream.encode(None))
        self._output.close()
        return self._tape.take()

    def patches(self) -> list[Patch]:
        return []

    def close(self) -> None:
        self._output.close()

    def _whole_frames(self) -> Iterator[Wave]:
        n = self._context.frame_size
        n_whole = len(self._rest) // n * n
        whole, self._rest = self._rest[:n_whole], self._rest[n_whole:]
        return iter(whole.reshape(-1, n))

    def _encode(self, samples: Wave) -> None:
        frame = self._frame_of(samples[None], format=self._context.format.name, layout="mono")
        frame.sample_rate = self._rate_hz
        frame.time_base = Fraction(1, self._rate_hz)
        frame.pts = self._n_fed
        self._n_fed += len(samples)
        self._output.mux(self._stream.encode(frame))


class _WriteOnly:
    """Without `seek`, FFmpeg does not try to come back."""

    def __init__(self, tape: _Tape) -> None:
        self.write = tape.write


def has_pyav() -> bool:
    """Whether the extra `codecs` is installed; does not import it."""
    try:
        return find_spec("av") is not None
    except ValueError:  # an import of it failed before
        return False


def pyav() -> Any:
    try:
        return import_module("av")
    except ImportError as error:
        raise MissingPackageError(
            "Opus and AAC need PyAV; install it with pip install 'nightingale-tts[codecs]', "
            "or take wav, flac or mp3"
        ) from error
