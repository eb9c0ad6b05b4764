"""Text that the model cannot read, on every transport: refused, or left out and reported."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from urllib.parse import unquote

import httpx
import pytest
from wyoming.client import AsyncTcpClient
from wyoming.error import Error
from wyoming.tts import Synthesize, SynthesizeVoice

from nightingale.text.split import CUT
from tests.server.running import Server
from tests.server.test_websocket import calling

pytestmark = pytest.mark.slow

TEXT, MIXED = "Hello world.", "Hello 🎉 wor世ld."


def ask(server: Server, text: str, **fields: Any) -> httpx.Response:
    body = server.body(text, **{"max_tokens": 12, **fields})
    return httpx.post(f"{server.url}/v1/audio/speech", json=body, timeout=60)


def log_of(server: Server, request_id: str) -> dict[str, Any]:
    lines = map(json.loads, server.log.read_text().splitlines())
    return next(line for line in lines if line.get("request") == request_id)


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("你好，世界。", {}),
        ("Привет, как дела?", {"stream": False}),
        ("你好，世界。", {"stream_format": "sse"}),
        ("🎉🎉", {}),
        ("...", {}),
    ],
)
def test_http_refuses_a_text_without_a_known_letter(
    server: Server, text: str, fields: dict[str, Any]
) -> None:
    reply = ask(server, text, **fields)
    assert reply.status_code == 400, reply.text
    error = reply.json()["error"]
    assert "nothing to say" in error["message"]
    assert error["code"] == "TextError"
    assert "你" not in server.log.read_text()


def test_http_reports_unknown_characters_before_the_first_byte(server: Server) -> None:
    origin = {"origin": server.url}
    plain = ask(server, TEXT)
    assert "x-unspoken" not in plain.headers
    for fields in ({}, {"stream": False}):
        body = server.body(MIXED, max_tokens=12, **fields)
        reply = httpx.post(f"{server.url}/v1/audio/speech", json=body, headers=origin, timeout=60)
        assert reply.status_code == 200
        assert reply.headers["x-unspoken"] == "%F0%9F%8E%89%E4%B8%96"
        assert unquote(reply.headers["x-unspoken"]) == "🎉世"
        assert "x-unspoken" in reply.headers["access-control-expose-headers"]
        assert reply.content == plain.content  # spoken as if they were not there
        request_id = reply.headers["x-request-id"]
        receipt = httpx.get(f"{server.url}/v1/requests/{request_id}").json()
        assert receipt["unspoken"] == ["🎉", "世"]
        assert log_of(server, request_id)["unspoken"] == 2
    assert "🎉" not in server.log.read_text()


def test_sse_reports_them_at_the_end_and_takes_a_locale(server: Server) -> None:
    lines = ask(server, MIXED, stream_format="sse", language="en_US").text.splitlines()
    events = [json.loads(line[6:]) for line in lines if line.startswith("data: ")]
    assert events[-1]["unspoken"] == ["🎉", "世"]


def test_another_language_is_named(server: Server) -> None:
    reply = ask(server, TEXT, language="de-DE")
    assert reply.status_code == 400
    assert "'de-DE' (German)" in reply.json()["error"]["message"]


def test_a_websocket_skips_what_cannot_be_read_and_reports_it(server: Server) -> None:
    with calling(server) as caller:
        caller.start(max_tokens=12, language="en-GB")
        caller.say("text", text=f"你好。{CUT} Hello world.{CUT} 🎉")
        caller.say("end")
        assert caller.hear()["type"] == "started"
        done = caller.hear()
        assert (done["type"], done["unspoken"]) == ("done", ["你", "好", "🎉"])
        alone = caller.sound[""]
        for text in ("你好。", "🎉"):
            caller.start(max_tokens=12)
            caller.say("text", text=text)
            caller.say("end")
            assert caller.hear()["type"] == "started"
            refused = caller.hear()
            assert (refused["type"], refused["is_over"]) == ("error", True)
            assert refused["error"]["code"] == "TextError"
        caller.sound.clear()
        caller.start(max_tokens=12)
        caller.say("text", text="Hello world.")
        caller.say("end")
        assert caller.hear()["type"] == "started"
        assert caller.hear()["unspoken"] == []
        assert caller.sound[""] == alone


def test_wyoming_refuses_what_cannot_be_read(server: Server) -> None:
    async def talk() -> str:
        async with AsyncTcpClient("127.0.0.1", server.wyoming_port) as client:
            voice = SynthesizeVoice(language="en_US")
            await client.write_event(Synthesize(text="你好", voice=voice).event())
            while (event := await client.read_event()) is not None:
                if Error.is_type(event.type):
                    return Error.from_event(event).text
        return ""

    assert "nothing to say that this model can read" in asyncio.run(talk())
