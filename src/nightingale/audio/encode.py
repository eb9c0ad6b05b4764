"""Chunks of sound become bytes: the only such loop, for files, pipes and servers alike.

24 kHz float samples come in, any format and rate goes out, as early as the coder allows and without
holding more than a moment of sound. The bytes depend on the samples and not on how they were cut.
A changed rate gives floor(n * rate / 24000 + 1/2) samples, by soxr HQ, which looks 75 ms ahead.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

import numpy as np
import soxr

from nightingale.audio.coders import Coder, Ffmpeg, Patch, Raw, Sndfile, Wav, Wave
from nightingale.audio.telephony import to_alaw, to_mulaw
from nightingale.core import SAMPLES_PER_SECOND
from nightingale.errors import OptionError, SpeechError

_ANY_RATE = range(4_000, 192_001)
_MPEG_RATES = (8_000, 11_025, 12_000, 16_000, 22_050, 24_000, 32_000, 44_100, 48_000)
_AAC_RATES = (*_MPEG_RATES, 64_000, 88_200, 96_000)
_OPUS_RATES = (8_000, 12_000, 16_000, 24_000, 48_000)


@dataclass(frozen=True, slots=True)
class Format:
    """What there is to know about a format before there is sound."""

    content_type: str
    coder: Callable[[int], Coder]  # rate in Hz -> a fresh coder
    suffixes: tuple[str, ...]
    rates_hz: Sequence[int] = _ANY_RATE
    rate_hz: int = SAMPLES_PER_SECOND  # unless another is asked for


FORMATS = {
    "wav": Format("audio/wav", Wav, (".wav",)),
    "flac": Format("audio/flac", partial(Sndfile, kind="FLAC", subtype="PCM_16"), (".flac",)),
    "mp3": Format(
        "audio/mpeg",
        # Between most and least: 96 kbit/s up to 24 kHz, and 192, as audiobook shops ask, above.
        partial(Sndfile, kind="MP3", bitrate_mode="CONSTANT", compression_level=0.42),
        (".mp3",),
        _MPEG_RATES,
    ),
    "opus": Format(
        "audio/ogg",
        partial(Ffmpeg, container="ogg", codec="libopus", bit_rate=48_000),
        (".opus", ".ogg"),
        _OPUS_RATES,
    ),
    "aac": Format(
        "audio/aac",
        partial(Ffmpeg, container="adts", codec="aac", bit_rate=64_000),
        (".aac",),
        _AAC_RATES,
    ),
    "pcm": Format("audio/pcm", lambda _rate_hz: Raw(), (".pcm", ".raw")),
    "mulaw": Format("audio/PCMU", lambda _rate_hz: Raw(to_mulaw), (".ulaw", ".ul"), rate_hz=8_000),
    "alaw": Format("audio/PCMA", lambda _rate_hz: Raw(to_alaw), (".alaw", ".al"), rate_hz=8_000),
}


class Encoder:
    """One stream of sound becoming bytes, for who is given samples rather than asking for them.

    Start, feed as often as needed, finish; close in any case. `encode` is this, in a loop.
    """

    def __init__(self, format: str, rate_hz: int | None = None) -> None:
        self._coder, self.rate_hz = _open(format, rate_hz)
        self._resampler = (
            None
            if self.rate_hz == SAMPLES_PER_SECOND
            else soxr.ResampleStream(
                SAMPLES_PER_SECOND, self.rate_hz, 1, dtype="float32", quality="HQ"
            )
        )
        self._n_chunks = self._n_samples = 0

    def start(self) -> bytes:
        """What can be sent before there is sound."""
        return self._coder.start()

    def feed(self, samples: Wave) -> bytes:
        """The bytes that are ready, maybe none."""
        _check(samples, self._n_chunks)
        self._n_chunks += 1
        self._n_samples += len(samples)
        return self._code(samples, is_last=False)

    def finish(self) -> bytes:
        """The rest."""
        if self._n_samples == 0:
            raise SpeechError("there is no sound to encode: no chunk held a sample")
        rest = b"" if self._resampler is None else self._code(np.zeros(0, np.float32), is_last=True)
        return rest + self._coder.finish()

    def patches(self) -> list[Patch]:
        """After `finish`: what could not be known before the end, for those who can go back."""
        return self._coder.patches()

    def close(self) -> None:
        """Let go of everything; also in the middle."""
        self._coder.close()

    def _code(self, samples: Wave, *, is_last: bool) -> bytes:
        if self._resampler is not None:
            samples = self._resampler.resample_chunk(samples, last=is_last)
        return self._coder.feed(np.clip(samples, -1.0, 1.0))


def encode(
    chunks: Iterable[Wave],
    format: str,
    rate_hz: int | None = None,
) -> Iterator[bytes]:
    """Bytes as soon as they are ready; sizes that only the end can tell are left open."""
    return _pieces(Encoder(format, rate_hz), chunks)


def encode_whole(
    chunks: Iterable[Wave],
    format: str,
    rate_hz: int | None = None,
) -> bytes:
    """All bytes at once, with true sizes."""
    encoder = Encoder(format, rate_hz)
    return patched(b"".join(_pieces(encoder, chunks)), encoder.patches())


def patched(whole: bytes, patches: Iterable[Patch]) -> bytes:
    """Finished bytes with what only the end could tell."""
    corrected = bytearray(whole)
    for at, piece in patches:
        corrected[at : at + len(piece)] = piece
    return bytes(corrected)


def write(
    path: Path,
    chunks: Iterable[Wave],
    format: str | None = None,
    rate_hz: int | None = None,
) -> None:
    """A file with true sizes, there when it is whole and not before; by its name unless said.

    A pipe or device gets what `encode` gives, at once.
    """
    encoder = Encoder(format or format_of(path), rate_hz)
    path = path.resolve()  # a link stays a link
    is_special = path.exists() and not path.is_file()
    draft = path if is_special else path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    with closing(encoder), _opened(draft, path) as file:
        for piece in _pieces(encoder, chunks):
            file.write(piece)
            file.flush()
        if is_special:
            return
        for at, piece in encoder.patches():
            file.seek(at)
            file.write(piece)
        file.flush()
        os.fsync(file.fileno())  # else a power cut may leave the name and nothing in it
        file.close()
        draft.replace(path)


@contextmanager
def _opened(draft: Path, path: Path) -> Iterator[BinaryIO]:
    """The draft, which is gone afterwards unless it was moved to its place."""
    try:
        file = draft.open("wb")
    except OSError as error:
        raise OptionError(f"{path} cannot be written: {error.strerror}") from error
    try:
        with file:
            yield file
    finally:
        if draft != path:
            draft.unlink(missing_ok=True)


def format_of(path: Path) -> str:
    """The format that a file's name asks for."""
    for name, format_ in FORMATS.items():
        if path.suffix.lower() in format_.suffixes:
            return name
    known = ", ".join(suffix for format_ in FORMATS.values() for suffix in format_.suffixes)
    raise OptionError(f"{path.name!r} does not say which format it is; known endings are {known}")


def _open(name: str, rate_hz: int | None) -> tuple[Coder, int]:
    format_ = FORMATS.get(name)
    if format_ is None:
        raise OptionError(f"there is no format {name!r}; there are {', '.join(FORMATS)}")
    rate_hz = format_.rate_hz if rate_hz is None else rate_hz
    rates_hz = format_.rates_hz
    if rate_hz not in rates_hz:
        allowed = (
            f"any from {rates_hz.start} to {rates_hz.stop - 1}"
            if isinstance(rates_hz, range)
            else ", ".join(map(str, rates_hz))
        )
        raise OptionError(f"{name} cannot have {rate_hz} Hz; it can have {allowed}")
    return format_.coder(rate_hz), rate_hz


def _pieces(encoder: Encoder, chunks: Iterable[Wave]) -> Iterator[bytes]:
    with closing(encoder):
        yield from filter(None, _coded(encoder, chunks))


def _coded(encoder: Encoder, chunks: Iterable[Wave]) -> Iterator[bytes]:
    yield encoder.start()
    yield from map(encoder.feed, chunks)
    yield encoder.finish()


def _check(samples: Wave, number: int) -> None:
    assert samples.ndim == 1 and samples.dtype == np.float32
    if not np.isfinite(samples).all():
        at = int(np.flatnonzero(~np.isfinite(samples))[0])
        raise SpeechError(
            f"sample {at} of chunk {number} is {samples[at]}, which is no sound: the model or "
            "its numbers broke; try again in another precision or on another device"
        )
