"""Recordings to be afraid of: crafted files, each with what must be said of it, and mutations.

The same bytes on every run.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import soundfile
from numpy.typing import NDArray

KINDS = {  # name: what soundfile calls it
    "wav": ("WAV", "PCM_16"),
    "wav24": ("WAV", "PCM_24"),
    "float": ("WAV", "FLOAT"),
    "ulaw": ("WAV", "ULAW"),
    "extensible": ("WAVEX", "PCM_16"),
    "rf64": ("RF64", "PCM_16"),
    "aiff": ("AIFF", "PCM_16"),
    "flac": ("FLAC", "PCM_16"),
    "vorbis": ("OGG", "VORBIS"),
    "opus": ("OGG", "OPUS"),
    "mp3": ("MP3", "MPEG_LAYER_III"),
}


def buzz(seconds: float = 1.0, rate_hz: int = 24_000, seed: int = 0) -> NDArray[np.float32]:
    """Half voice, half engine: gliding harmonics with pauses, and a little noise."""
    return _buzz(seconds, rate_hz, seed).copy()  # some tests write into it


@lru_cache(maxsize=32)
def _buzz(seconds: float, rate_hz: int, seed: int) -> NDArray[np.float32]:
    time_s = np.arange(int(seconds * rate_hz)) / rate_hz
    generator = np.random.default_rng(seed)
    phase = 2 * np.pi * np.cumsum(110 + 30 * seed + 40 * np.sin(5 * time_s)) / rate_hz
    harmonics = sum(np.sin(n * phase) / n for n in range(1, 12))
    loudness = np.clip(np.sin(2 * np.pi * 1.7 * time_s) + 0.6, 0, 1)
    noise = generator.standard_normal(time_s.size)
    return (0.2 * loudness * harmonics + 0.001 * noise).astype(np.float32)


@lru_cache(maxsize=128)
def good(kind: str, seconds: float = 1.0, rate_hz: int = 24_000, channels: int = 1) -> bytes:
    """A whole file of that kind."""
    file = io.BytesIO()
    wave = np.stack([buzz(seconds, rate_hz, seed) for seed in range(channels)], axis=1)
    container, codec = KINDS[kind]
    soundfile.write(file, wave, rate_hz, format=container, subtype=codec)
    data = file.getvalue()
    return mend_ogg(data) if container == "OGG" else data


def mend_ogg(data: bytes) -> bytes:
    """Give every page one stream number and a true checksum, so that a decoder looks inside."""
    out, at = bytearray(data), 0
    while (at := data.find(b"OggS", at)) >= 0 and at + 27 <= len(data):
        lacing = data[at + 27 : at + 27 + data[at + 26]]
        end = min(at + 27 + len(lacing) + sum(lacing), len(data))
        out[at + 14 : at + 18] = b"\1\0\0\0"
        out[at + 22 : at + 26] = bytes(4)
        out[at + 22 : at + 26] = struct.pack("<I", _ogg_checksum(bytes(out[at:end])))
        at = max(end, at + 4)
    return bytes(out)


_MIRRORED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))


def _ogg_checksum(page: bytes) -> int:
    """Ogg's is that of zlib with all bits the other way round, and without its inversions."""
    value = zlib.crc32(page.translate(_MIRRORED), 0xFFFF_FFFF) ^ 0xFFFF_FFFF
    return int(f"{value:032b}"[::-1], 2)


def wav(  # every field a lie, if asked
    body: bytes = bytes(9600),
    *,
    tag: int = 1,
    channels: int = 1,
    rate_hz: int = 24_000,
    bits: int = 16,
    align: int | None = None,
    n_data: int | None = None,
    n_riff: int | None = None,
    chunks: bytes = b"",
) -> bytes:
    align = channels * bits // 8 if align is None else align
    form = struct.pack("<HHIIHH", tag, channels, rate_hz, 0, align & 0xFFFF, bits)
    inside = b"WAVEfmt " + struct.pack("<I", len(form)) + form + chunks
    inside += b"data" + struct.pack("<I", len(body) if n_data is None else n_data) + body
    return b"RIFF" + struct.pack("<I", len(inside) if n_riff is None else n_riff) + inside


def patched(data: bytes, at: int, patch: bytes) -> bytes:
    return data[:at] + patch + data[at + len(patch) :]


def floats(*values: float) -> bytes:
    wave = buzz(0.5)
    wave[1000 : 1000 + len(values)] = values
    return wav(wave.tobytes(), tag=3, bits=32)


def crafted() -> dict[str, tuple[bytes, str | None]]:
    """Name: the bytes, and a piece of what the error must say (None: it is a good recording)."""
    whole, flac, vorbis, mp3 = good("wav"), good("flac"), good("vorbis"), good("mp3")
    n_riff = len(whole) - 8
    long_silence = io.BytesIO()
    soundfile.write(long_silence, np.zeros(301 * 8000), 8000, format="FLAC")
    adpcm, tone = io.BytesIO(), buzz(0.5)
    soundfile.write(adpcm, tone, 24_000, format="WAV", subtype="IMA_ADPCM")
    aiff, rate_at = good("aiff"), good("aiff").find(b"COMM") + 16
    pcm = (tone * 32767).astype("<i2").tobytes()
    return {
        # nothing, or not sound
        "empty": (b"", "empty file"),
        "one byte": (b"R", "no kind we know"),
        "zeros": (bytes(5000), "no kind we know"),
        "text": (b"This is a shopping list: milk, bread.\n" * 40, "no kind we know"),
        "page": (b"<!DOCTYPE html><html></html>", "no kind we know"),
        "m4a": (b"\0\0\0\x20ftypM4A \0\0\0\0M4A mp42isom" + bytes(500), "damaged"),
        "webm": (b"\x1aE\xdf\xa3\x9fB\x86\x81\x01" + bytes(500), "damaged"),
        "zip": (b"PK\x03\x04" + bytes(500), "no kind we know"),
        "core audio": (b"caff\0\1\0\0" + bytes(500), "damaged"),
        "amr": (b"#!AMR\n" + bytes(500), "damaged"),
        "playlist": (b"#EXTM3U\n#EXTINF:9,\nfile:///etc/passwd\n", "no kind we know"),
        "concat list": (b"ffconcat version 1.0\nfile /etc/passwd\n", "no kind we know"),
        "sdp": (b"v=0\r\nm=audio 9 RTP/AVP 0\r\nc=IN IP4 127.0.0.1\r\n", "no kind we know"),
        "manifest": (b"<?xml version='1.0'?><MPD><BaseURL>/etc/</BaseURL></MPD>", "no kind"),
        # a format that libsndfile knows and we do not hand on
        "sun audio": (b".snd" + struct.pack(">IIIII", 24, 9600, 3, 24000, 1) + pcm, "no kind"),
        "ircam": (b"\x64\xa3\x01\x00" + bytes(2000), "no kind we know"),
        "matlab": (b"MATLAB 5.0 MAT-file" + bytes(2000), "no kind we know"),
        # sizes of WAV
        "riff only": (b"RIFF", "no kind we know"),
        "riff wave only": (b"RIFF\4\0\0\0WAVE", "damaged"),
        "header only": (whole[:44], "cut short"),
        "no samples": (wav(b""), "0 samples"),
        "one sample": (wav(b"\1\0"), "1 samples"),
        "half a sample": (wav(b"\1"), "0 samples"),
        "a twentieth of a second": (wav(pcm[:2400]), "1200 samples"),
        "cut in the middle": (whole[: len(whole) // 2], "cut short"),
        "claims two gigabytes": (wav(pcm, n_data=0x7FFE_FFFF, n_riff=0x7FFE_0000), "cut short"),
        "open sizes": (wav(pcm, n_data=0xFFFF_FFFF, n_riff=0xFFFF_FFFF), None),
        "zero sizes": (wav(pcm, n_data=0, n_riff=0), "0 samples"),
        "small riff size": (wav(pcm, n_riff=4), None),
        "data claims less": (wav(pcm, n_data=9600), None),
        "tail of rubbish": (whole + b"rubbish" * 100, None),
        "no data chunk": (whole[:36], "cut short"),
        "no format chunk": (b"RIFF\x14\0\0\0WAVEdata\x08\0\0\0" + bytes(8), "damaged"),
        "chunk of four gigabytes": (wav(pcm, chunks=b"LIST\xf0\xff\xff\xff"), "damaged"),
        "a thousand empty chunks": (wav(pcm, chunks=b"junk\0\0\0\0" * 1000), None),
        # the format of WAV
        "rate 0": (wav(pcm, rate_hz=0), "damaged|0 samples a second"),
        "rate 1": (wav(pcm, rate_hz=1), "1 samples a second"),
        "rate 999": (wav(pcm, rate_hz=999), "999 samples a second"),
        "rate 192001": (wav(pcm, rate_hz=192_001), "192001 samples a second"),
        "rate 2 ** 31": (wav(pcm, rate_hz=2**31), "damaged|samples a second"),
        "rate 2 ** 32 - 1": (wav(pcm, rate_hz=2**32 - 1), "damaged|samples a second"),
        "rate 192000": (wav(pcm * 4, rate_hz=192_000), None),
        "channels 0": (wav(pcm, channels=0, align=2), "damaged"),
        "channels 9": (wav(pcm, channels=9), "9 channels"),
        "channels 1024": (wav(pcm, channels=1024), "1024 channels"),
        "channels 65535": (wav(pcm, channels=65535), "damaged"),
        "channels 8": (wav(pcm * 4, channels=8), None),
        "bits 0": (wav(pcm, bits=0, align=2), "damaged|do not read"),
        "bits 255": (wav(pcm, bits=255, align=32), "damaged|do not read"),
        "align 0": (wav(pcm, align=0), None),
        "align 65535": (wav(pcm, align=65535), None),
        "adpcm": (adpcm.getvalue(), "IMA ADPCM, which we do not read"),
        "half an adpcm": (wav(pcm, tag=0x11, bits=4, align=512), "damaged"),
        "gsm": (wav(pcm, tag=0x31, bits=0, align=65), "damaged"),
        "unknown codec": (wav(pcm, tag=0xABCD), "damaged|do not read"),
        # the samples of WAV
        "nan": (floats(float("nan")), "no numbers"),
        "infinity": (floats(float("inf")), "no numbers"),
        "huge": (floats(1e30), "full scale is 1"),
        "denormal": (floats(1e-42), None),
        "over full scale": (floats(1.5, -1.5), None),
        # the other kinds
        "rf64 without sizes": (b"RF64" + whole[4:], None),
        "aiff cut": (aiff[:3000], "cut short"),
        "aiff header": (aiff[:20], "cut short"),
        "aiff rate zero": (patched(aiff, rate_at, bytes(10)), "samples a second"),
        "aiff rate nan": (patched(aiff, rate_at, b"\x7f" + b"\xff" * 9), "samples a second"),
        "flac cut": (flac[: len(flac) // 2], "cut short|damaged"),
        "flac header": (flac[:42], "cut short|damaged|samples"),
        "flac of a month": (patched(flac, 21, bytes([flac[21] | 15]) + b"\xff" * 4), "cut short"),
        "flac tells no length": (patched(flac, 21, bytes([flac[21] & 240]) + bytes(4)), None),
        "flac rate 0": (patched(flac, 18, bytes([0, 0, flac[20] & 15])), "damaged"),
        "five minutes of silence": (long_silence.getvalue(), "longer than 300 s"),
        "ogg page": (b"OggS" + bytes(23), "damaged"),
        "ogg first page": (vorbis[:58], "damaged"),
        "ogg cut": (vorbis[: len(vorbis) // 2], "0 samples"),
        "ogg twice": (vorbis + vorbis, None),
        "opus head": (good("opus")[:47], "damaged"),
        "opus 255 channels": (mend_ogg(patched(good("opus"), 37, b"\xff")), "damaged|channels"),
        "mp3 sync only": (b"\xff\xfb\x90\x00", "damaged|samples"),
        "mp3 of ones": (b"\xff" * 5000, "damaged"),
        "mp3 cut": (mp3[: len(mp3) // 2], "cut short"),
        "mp3 behind a tag": (b"ID3\4\0\0\0\0\0\x14" + bytes(20) + mp3, None),
        "tag of 256 MB": (b"ID3\4\0\0\x7f\x7f\x7f\x7f" + mp3, "no kind we know"),
        "ten thousand tags": (b"ID3\4\0\0\0\0\0\0" * 10_000 + mp3, "no kind we know"),
        "tag alone": (b"ID3\4\0\0\0\0\0\0", "no kind we know"),
        "riff size off by eight": (wav(pcm, n_riff=n_riff // 2 + 8), None),
    }  # fmt: skip


def mutations(numbers: range, seed: int = 0) -> Iterator[tuple[str, bytes]]:
    """Damaged good files: name and bytes; the one of a number is always the same."""
    kinds = list(KINDS)
    for number in numbers:
        generator = np.random.default_rng((seed, number))
        kind = kinds[number % len(kinds)]
        channels = int(generator.integers(1, 3))
        data = bytearray(good(kind, 0.3, (8000, 24_000, 48_000)[number % 3], channels))
        for _ in range(int(generator.integers(1, 6))):
            _hurt(data, generator)
        damaged = bytes(data)
        if kind in ("vorbis", "opus") and number % 4:
            damaged = mend_ogg(damaged)
        yield f"{kind} {seed}/{number}", damaged


def _hurt(data: bytearray, generator: np.random.Generator) -> None:
    """One wound, as often in the first hundred bytes as anywhere."""
    reach = min(len(data), 100) if generator.random() < 0.5 else len(data)
    at = int(generator.integers(0, max(reach, 1)))
    n_bytes = int(generator.integers(1, 9))
    match int(generator.integers(0, 7)):
        case 0:
            data[at : at + 1] = bytes([int(generator.integers(0, 256))])
        case 1:
            data[at : at + n_bytes] = generator.bytes(n_bytes)
        case 2:
            data[at : at + n_bytes] = b"\xff" * n_bytes
        case 3:
            data[at : at + n_bytes] = bytes(n_bytes)
        case 4:
            del data[at : at + n_bytes * int(generator.integers(1, 60))]
        case 5:
            data[at:at] = data[at // 2 : at // 2 + 40 * n_bytes]
        case _:
            del data[max(at, 12) :]
