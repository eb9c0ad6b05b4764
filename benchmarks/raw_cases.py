"""Made-up conversations, byte by byte: heads, bodies, frames, events, their sizes and times.

A case is drawn from a seed alone, so that one which shows a fault can be repeated.
"""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

Protocol = Literal["http", "websocket", "wyoming"]
PROTOCOLS: tuple[Protocol, ...] = ("http", "http", "http", "websocket", "websocket", "wyoming")

PATHS = (
    *("/", "/docs", "/page/page.js", "/v1/models", "/v1/models/x", "/v1/audio/voices", "/metrics"),
    *("/health/live", "/v1/requests/x", "/tts-stream?text=Hi", "/nowhere", "/%00", "/..%2f..", "*"),
    *("/tts", "/v1/audio/speech", "/upload_reference", "/ws/tts", "//", "/?\xff", "http://a.b/c"),
)
METHODS = ("GET", "GET", "POST", "POST", "HEAD", "OPTIONS", "DELETE", "PUT", "CONNECT", "X", "get")
VALUES: dict[str, tuple[str, ...]] = {
    "host": ("localhost", "127.0.0.1", "evil.example", "[", "[::1]:8004", "", "a:b:c", "\xff"),
    "origin": ("http://localhost:1", "https://evil.example", "null", "http://[", "\xe9", ""),
    "authorization": ("Bearer x", "Basic \xe9", "Basic ====", "Basic", "Digest a=b", "", " "),
    "content-type": ("application/json", "multipart/form-data", "text/plain", ";;;", "\xff",
                     "multipart/form-data; boundary=x", "application/x-www-form-urlencoded"),
    "content-length": ("0", "5", "-1", "1e9", "99999999999999999999", "\xb2", "0x5", "5, 5"),
    "transfer-encoding": ("chunked", "gzip, chunked", "identity", "chunked, chunked", "x"),
    "expect": ("100-continue", "x"),
    "connection": ("close", "keep-alive", "upgrade", "upgrade, close", "x" * 500),
    "upgrade": ("websocket", "h2c", "x"),
    "range": ("bytes=0-0", "bytes=" + "0-0," * 900, "bytes=-", "x"),
    "sec-fetch-site": ("cross-site", "same-site", "none", "x"),
    "x-request-id": ("a", "\xe9", "a" * 500, "../x"),
    "accept": ("*/*", "x" * 4000),
}  # fmt: skip
JUNK: tuple[Any, ...] = (
    *(None, True, 0, -1, 10**30, 1e308, float("nan"), [], {}, [[]] * 50, {"id": "x"}),
    *("", " ", "\u0000", "\ud800", "\u202e)" * 40, "\U0001f600" * 50),
)
NAMES = (*JUNK, "x", "x" * 2000, "\xe9", "default", "alloy", "pcm", "opus_8000", "sse", "auto")
FIELDS = ("input", "text", "voice", "response_format", "sample_rate", "seed", "temperature", "id",
          "speed", "stream", "stream_format", "model", "language", "played_ms", "type")  # fmt: skip


@dataclass(frozen=True, slots=True)
class Case:
    """What is written, with the pause behind each piece; and how it ends."""

    number: int
    protocol: Protocol
    kind: str
    pieces: tuple[tuple[bytes, float], ...]
    reads: bool = True  # else it hangs up without having looked


def draw(seed: int, number: int) -> Case:
    """The case of that number."""
    rng = random.Random(f"{seed}:{number}")
    protocol = rng.choice(PROTOCOLS)
    kind, data = _DRAW[protocol](rng)
    mutation = rng.random()
    if mutation < 0.1:
        kind, data = f"{kind}, damaged", _damaged(rng, data)
    elif mutation < 0.2:
        kind, data = f"{kind}, cut", data[: rng.randrange(1 + len(data))]
    return Case(number, protocol, kind, _timed(rng, data), rng.random() > 0.1)


def _size(rng: random.Random, most: float = 5.3) -> int:
    """Up to 200,000, each power of ten as likely as any other."""
    return int(10 ** rng.uniform(0, most))


def _timed(rng: random.Random, data: bytes) -> tuple[tuple[bytes, float], ...]:
    if rng.random() < 0.6 or len(data) < 2:
        return ((data, 0.0),)
    cuts = sorted(rng.randrange(len(data)) for _ in range(rng.randint(1, 6)))
    pieces = [data[a:b] for a, b in zip([0, *cuts], [*cuts, len(data)], strict=True)]
    longest = rng.choice((0.01, 0.01, 0.1, 1.0))
    return tuple((piece, rng.uniform(0, longest)) for piece in pieces if piece)


def _damaged(rng: random.Random, data: bytes) -> bytes:
    changed = bytearray(data)
    for _ in range(rng.randint(1, 8)):
        at = rng.randrange(1 + len(changed))
        noise = rng.choice((b"\x00", b"\r", b"\n", b"\xff", b":", bytes([rng.randrange(256)])))
        if rng.random() < 0.5:
            changed[at:at] = noise * _size(rng, 3)
        else:
            changed[at : at + 1] = noise
    return bytes(changed)


def _json(rng: random.Random, **fields: Any) -> bytes:
    for _ in range(rng.randint(0, 3)):
        name = rng.choice(FIELDS)
        # Speech beside the stream takes its time, and would be no fault.
        fields[name] = rng.choice(JUNK if name in ("input", "text") else NAMES)
    text = json.dumps(fields)
    shape = rng.random()
    if shape < 0.05:
        text = "[" * _size(rng) + text
    elif shape < 0.10:
        text = text[:-1] + ', "more": [' + ",".join(["[]"] * _size(rng, 4.8)) + "]}"
    return text.encode()


def _head(rng: random.Random, method: str, path: str, more: dict[str, str]) -> bytes:
    headers = [("host", "localhost"), *more.items()]
    for _ in range(rng.choice((0, 0, 0, 1, 1, 1, 2, 5, 20, 150))):
        name = rng.choice((*VALUES, "cookie", "x" * 20))
        values = VALUES.get(name, ("a=b",))
        headers.append((name, values[0] if rng.random() < 0.4 else rng.choice(values)))
    if rng.random() < 0.1:
        headers.append(("x-long", "v" * _size(rng)))
    if rng.random() < 0.05:
        path += "?" + "u" * _size(rng)
    lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
    return f"{method} {path} HTTP/1.1\r\n{lines}\r\n".encode("latin-1", "replace")


_SPOKEN = b'{"input": "Hi.", "max_tokens": 2, "response_format": "pcm"}'
_PLAIN = (
    b"POST /v1/audio/speech HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n"
    % len(_SPOKEN)
) + _SPOKEN


def _http(rng: random.Random) -> tuple[str, bytes]:
    kind = rng.random()
    if kind < 0.05:
        return "noise", rng.randbytes(_size(rng, 4))
    if kind < 0.2:
        path = rng.choice(("/", "/v1/models", "/health/live", "/v1/audio/voices", "/metrics"))
        return f"plain GET {path}", f"GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode()
    if kind < 0.25:
        return "plain POST", _PLAIN
    method, path = rng.choice(METHODS), rng.choice(PATHS)
    if rng.random() < 0.4:
        method, path = "POST", rng.choice(("/v1/audio/speech", "/tts", "/v1/audio/voices"))
    if method != "POST":
        return f"{method} {path}", _head(rng, method, path, {}) * rng.choice((1, 1, 1, 30))
    limits = {"max_tokens": rng.randint(1, 4), "response_format": "pcm"}
    body = _json(rng, input=".", text=".", **limits)  # nothing to say, unless a field is replaced
    if rng.random() < 0.03:
        body = b"x" * _size(rng)
    kind = rng.random()
    if kind < 0.15:
        framed = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in _parts(rng, body))
        return "POST chunked", _head(
            rng, method, path, {"transfer-encoding": "chunked"}
        ) + framed + rng.choice((b"0\r\n\r\n", b"", b"-1\r\n", b"fffffffffffffffff\r\n"))
    length = len(body) if kind < 0.85 else rng.choice((0, len(body) + 9, 10**12))
    more = {"content-length": str(length), "content-type": "application/json"}
    return "POST", _head(rng, method, path, more) + body


def _parts(rng: random.Random, body: bytes) -> list[bytes]:
    size = max(1, _size(rng, 4))
    return [body[at : at + size] for at in range(0, len(body), size)][:500]


SHAKE = (
    b"GET /ws/tts HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
    b"sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)


def _frame(opcode: int, data: bytes, *, first: int = 0x80, masked: bool = True) -> bytes:
    mask = 0x80 if masked else 0
    if len(data) < 126:
        size = bytes([mask | len(data)])
    elif len(data) < 2**16:
        size = bytes([mask | 126]) + struct.pack("!H", len(data))
    else:
        size = bytes([mask | 127]) + struct.pack("!Q", len(data))
    return bytes([first | opcode]) + size + (b"\0\0\0\0" if masked else b"") + data


def _websocket(rng: random.Random) -> tuple[str, bytes]:
    if rng.random() < 0.1:
        more = {"connection": "upgrade", "upgrade": "websocket", "sec-websocket-version": "13"}
        return "handshake", _head(rng, "GET", "/ws/tts", more)
    frames = [_message(rng) for _ in range(rng.choice((1, 2, 5, 20, 300)))]
    return "frames", SHAKE + b"".join(frames)


def _message(rng: random.Random) -> bytes:
    kind = rng.random()
    if kind < 0.7:
        name = rng.choice(("start", "text", "text", "flush", "end", "cancel", "ping", "x"))
        return _frame(1, _json(rng, type=name, id=rng.choice("abc"), text=" .", max_tokens=2))
    data = rng.randbytes(_size(rng, 3))
    if kind < 0.8:
        return _frame(rng.choice((2, 8, 9, 10)), data[: rng.choice((0, 2, 125, 900))])
    if kind < 0.9:
        return _frame(1, b"", first=0) + _frame(0, b"", first=0) * _size(rng, 3) + _frame(0, b"")
    return _frame(rng.randrange(16), data, first=rng.randrange(16) << 4, masked=kind < 0.95)


def _wyoming(rng: random.Random) -> tuple[str, bytes]:
    if rng.random() < 0.1:
        return "noise", rng.randbytes(_size(rng, 4))
    kinds = ("describe", "ping", "synthesize", "synthesize-start", "synthesize-chunk", "x",
             "synthesize-stop", "audio-start")  # fmt: skip
    events = []
    for _ in range(rng.choice((1, 2, 5, 300))):
        data: dict[str, Any] = {"text": rng.choice((" .", "", *JUNK[:4], "." * _size(rng, 4)))}
        if rng.random() < 0.2:
            data["voice"] = rng.choice(({}, {"name": "nobody"}, {"language": 7}, 7, None))
        event: dict[str, Any] = {"type": rng.choice(kinds), "data": data}
        if rng.random() < 0.1:
            event[rng.choice(("data_length", "payload_length"))] = rng.choice(
                (0, 5, -1, 10**12, "x", 1.5, None)
            )
        events.append(json.dumps(event).encode() + b"\n")
    return "events", b"".join(events)


_DRAW: dict[Protocol, Callable[[random.Random], tuple[str, bytes]]] = {
    "http": _http,
    "websocket": _websocket,
    "wyoming": _wyoming,
}
