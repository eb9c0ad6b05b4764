"""Mark-up on every transport: voices by name, tags that are not followed, words as written."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any
from urllib.parse import unquote

import httpx
import numpy as np
import pytest
from wyoming.audio import AudioChunk
from wyoming.client import AsyncTcpClient
from wyoming.error import Error
from wyoming.tts import Synthesize

from nightingale.audio.encode import encode
from nightingale.core import Voice
from nightingale.pipeline import Nightingale
from nightingale.voice.library import VoiceLibrary
from nightingale.voice.metadata import VoiceMetadata
from tests.server.conftest import Solo, Subject
from tests.server.running import Server
from tests.server.test_websocket import calling

pytestmark = pytest.mark.slow

SCRIPT = "[voice:nell]Yes.[/voice] [pause:400ms] Go <emphasis>home</emphasis>."


@pytest.fixture(scope="module")
def voices(server: Server, subject: Subject) -> dict[str, Voice]:
    """One more voice, in the server's folder."""
    own = Nightingale.load(subject.folder, home=server.home).components.voice
    nell = replace(own, t3=replace(own.t3, speaker=np.roll(own.t3.speaker, 1)))
    VoiceLibrary(server.home / "voices").save("nell", nell, VoiceMetadata("fledgling"))
    return {"nell": nell}


def pcm(samples: Any) -> bytes:
    return b"".join(encode([samples], "pcm"))


def ask(server: Server, text: str, **fields: Any) -> httpx.Response:
    return httpx.post(f"{server.url}/v1/audio/speech", json=server.body(text, **fields), timeout=60)


def test_a_script_of_two_voices_is_one_request(
    server: Server, solo: Solo, voices: dict[str, Voice]
) -> None:
    reply = ask(server, SCRIPT, seed=6)
    assert reply.status_code == 200, reply.text
    assert reply.content == pcm(solo(SCRIPT, seed=6, voices=voices))
    assert unquote(reply.headers["x-unspoken"]) == "<emphasis>"
    url = f"{server.url}/v1/requests/{reply.headers['x-request-id']}/audio?from=1000"
    assert httpx.get(url, timeout=60).content == reply.content[1000:]


def test_an_unknown_voice_is_named_before_anything_is_spoken(server: Server) -> None:
    reply = ask(server, "Yes. [voice:nobody]No.[/voice]")
    assert reply.status_code == 400
    error = reply.json()["error"]
    assert error["code"] == "voice_not_found"
    assert "nobody" in error["message"]
    reply = ask(server, "Yes. [pause:11s]")
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "MarkupError")


def test_a_voice_that_arriving_text_names_is_fetched_then(
    server: Server, solo: Solo, voices: dict[str, Voice]
) -> None:
    pieces = ["Come in. [vo", "ice:nell]Yes", ", now.[/voice] So be it."]
    with calling(server) as caller:
        caller.start(seed=6)
        for piece in pieces:
            caller.say("text", text=piece)
        caller.say("end")
        assert caller.hear()["type"] == "started"
        done = caller.hear()
    assert done["type"] == "done", done
    assert caller.sound[""] == pcm(solo(pieces, seed=6, voices=voices))


def test_an_unknown_voice_ends_an_arriving_text(server: Server) -> None:
    with calling(server) as caller:
        caller.start(seed=6)
        caller.say("text", text="Yes. [voice:nobody]No.")
        found = caller.hear()
        while found["type"] == "started":
            found = caller.hear()
    assert found["type"] == "error", found
    assert found["is_over"]
    assert "nobody" in json.dumps(found)


def test_cancel_inside_a_figure_names_it_as_it_is_written(server: Server) -> None:
    with calling(server) as caller:
        caller.start(seed=3)
        caller.say("text", text="We paid 12,50 EUR today.", language="de")
        caller.say("flush")  # and not the end: it stays open
        amount = None
        while amount is None:
            message = json.loads(caller.socket.recv(timeout=60))
            if message["type"] == "audio":
                caller.socket.recv(timeout=60)
            words = message.get("words", ())
            amount = next((word for word in words if word["word"] == "12,50 EUR"), None)
        caller.say("cancel", played_ms=500 * (amount["start"] + amount["end"]))
        cancelled = caller.hear()
    assert cancelled["type"] == "cancelled", cancelled
    assert cancelled["last_word"] == amount
    assert cancelled["spoken"] == "We paid 12,50 EUR"


def test_wyoming_names_an_unknown_voice(server: Server) -> None:
    async def say(text: str) -> Any:
        async with AsyncTcpClient("127.0.0.1", server.wyoming_port) as client:
            await client.write_event(Synthesize(text=text).event())
            while event := await client.read_event():
                if Error.is_type(event.type):
                    return Error.from_event(event).text
                if AudioChunk.is_type(event.type):
                    return "sound"
        return None

    assert "nobody" in asyncio.run(say("Yes. [voice:nobody]No."))
    assert asyncio.run(say("[voice:default]Yes.")) == "sound"


def test_what_will_be_said_is_shown_without_tags(server: Server) -> None:
    body = {"input": "<speak>A &amp; B <mark name='x'/> [pause:1s] <spell>ab</spell></speak>"}
    shown = httpx.post(f"{server.url}/v1/audio/normalize", json=body).json()
    assert shown["text"] == "A & B\nA B"
    assert shown["ignored"] == ["<mark>"]
