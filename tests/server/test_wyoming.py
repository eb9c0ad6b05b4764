"""The `wyoming` client, as Home Assistant uses it."""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Sequence
from contextlib import suppress

import pytest
from wyoming.audio import AudioChunk, AudioStart, AudioStop
from wyoming.client import AsyncTcpClient
from wyoming.error import Error
from wyoming.event import Event, Eventable
from wyoming.info import Describe, Info
from wyoming.ping import Ping, Pong
from wyoming.tts import (
    Synthesize,
    SynthesizeChunk,
    SynthesizeStart,
    SynthesizeStop,
    SynthesizeStopped,
    SynthesizeVoice,
)

from nightingale.audio.encode import encode
from tests.server.conftest import Solo, Subject
from tests.server.running import Server

pytestmark = pytest.mark.slow

TEXT = "The quick brown fox jumps over the lazy dog."
PIECES = ["Sure, I ", "can do th", "at. It takes a ", "while."]


@pytest.fixture(autouse=True)
def ends_by_itself(subject: Subject) -> None:
    if subject.options:
        pytest.skip("Wyoming has no way to bound a model that never ends")


def converse(
    server: Server, said: Sequence[Eventable], last: type[Eventable], n_last: int = 1
) -> list[Event]:
    async def main() -> list[Event]:
        heard: list[Event] = []
        async with AsyncTcpClient("127.0.0.1", server.wyoming_port) as client:
            for event in said:
                await client.write_event(event.event())
            while True:
                got = await asyncio.wait_for(client.read_event(), 60)
                assert got is not None
                heard.append(got)
                if sum(last.is_type(event.type) for event in heard) == n_last:
                    return heard

    return asyncio.run(main())


def sound(events: list[Event]) -> bytes:
    assert AudioStart.from_event(events[0]).rate == 24_000
    chunks = [AudioChunk.from_event(e) for e in events if AudioChunk.is_type(e.type)]
    assert all((chunk.rate, chunk.width, chunk.channels) == (24_000, 2, 1) for chunk in chunks)
    return b"".join(chunk.audio for chunk in chunks)


def test_it_says_what_it_can(server: Server) -> None:
    info = Info.from_event(converse(server, [Describe()], Info)[0])
    assert info.tts[0].supports_synthesize_streaming
    assert info.tts[0].voices[0].name == "default"  # other tests may have added some
    assert Pong.is_type(converse(server, [Ping()], Pong)[0].type)


def test_a_text_becomes_sound(server: Server, solo: Solo) -> None:
    events = converse(server, [Synthesize(TEXT)], AudioStop)
    assert sound(events) == b"".join(encode([solo(TEXT)], "pcm"))


def test_text_in_pieces_becomes_sound_while_it_comes(server: Server, solo: Solo) -> None:
    """With the whole text once more before the end, as Home Assistant sends it."""
    voice = SynthesizeVoice(name="default")
    said = [
        SynthesizeStart(voice=voice),
        *(SynthesizeChunk(piece) for piece in PIECES),
        Synthesize("".join(PIECES), voice=voice),
        SynthesizeStop(),
    ]
    events = converse(server, said, SynthesizeStopped)
    assert sound(events) == b"".join(encode([solo(PIECES)], "pcm"))
    assert AudioStop.is_type(events[-2].type)


def test_two_texts_come_one_after_the_other(server: Server, solo: Solo) -> None:
    said = [Synthesize(TEXT), Synthesize("It is me.")]
    events = converse(server, said, AudioStop, n_last=2)
    cut = next(at for at, event in enumerate(events) if AudioStop.is_type(event.type)) + 1
    assert sound(events[:cut]) == b"".join(encode([solo(TEXT)], "pcm"))
    assert sound(events[cut:]) == b"".join(encode([solo("It is me.")], "pcm"))


def test_mistakes_are_told(server: Server) -> None:
    nobody = SynthesizeVoice(name="nobody")
    error = Error.from_event(converse(server, [Synthesize(TEXT, voice=nobody)], Error)[-1])
    assert "there is no voice" in error.text
    assert Error.from_event(converse(server, [Synthesize("")], Error)[-1]).code == "TextError"


def test_noise_is_no_harm(server: Server, solo: Solo) -> None:
    async def shout(noise: bytes) -> None:
        _, writer = await asyncio.open_connection("127.0.0.1", server.wyoming_port)
        writer.write(noise)
        writer.close()

    for noise in (
        b"GET / HTTP/1.1\r\n\r\n",
        b"{}\n",
        b"[]\n",
        b'{"type": "synthesize"}\n',
        b"\xff" * 99,
    ):
        asyncio.run(shout(noise))
    assert sound(converse(server, [Synthesize(TEXT)], AudioStop))


def test_a_flood_of_texts_is_not_read_and_a_hang_up_cancels_them(
    server: Server, solo: Solo
) -> None:
    """5,000 texts were 5,000 tasks; hanging up raised RecursionError, and all were spoken."""
    text = json.dumps({"type": "synthesize", "data": {"text": f"{TEXT} " * 400}}).encode() + b"\n"
    n_before = server.meter("audio_seconds_total")
    with socket.create_connection(("127.0.0.1", server.wyoming_port)) as flood:
        flood.settimeout(1.0)
        n_sent = 0
        with suppress(TimeoutError):
            while n_sent < 5000 * len(text):
                n_sent += flood.send(text)
        assert n_sent < 30_000_000  # of 90 MB: the rest does not leave this machine's buffers
        assert sound(converse(server, [Synthesize(TEXT)], AudioStop)) == b"".join(
            encode([solo(TEXT)], "pcm")
        )
    until = time.monotonic() + 20
    while server.meter("speaking") or server.meter("waiting"):
        assert time.monotonic() < until
        time.sleep(0.05)
    assert server.meter("audio_seconds_total") - n_before < 200  # two texts are 1,900 s
    assert "RecursionError" not in server.log.read_text()
