"""Messages that a WebSocket cannot use: which field is wrong, and what is allowed. No model."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient, WebSocketTestSession

from tests.server.test_middleware import make_gate

DEEP = '{"type": "start", "x": ' + "[" * 200_000 + "]" * 200_000 + "}"
TYPES = "start, text, flush, end, cancel, ping"


@pytest.fixture(scope="module")
def socket(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WebSocketTestSession]:
    folder: Path = tmp_path_factory.mktemp("home")
    client = TestClient(make_gate(folder))
    with client.websocket_connect("ws://localhost/v1/audio/speech/stream") as session:
        yield session


def answer(socket: WebSocketTestSession, message: str) -> dict[str, Any]:
    socket.send_text(message)
    reply: dict[str, Any] = socket.receive_json()
    return reply


@pytest.mark.parametrize(
    ("message", "param", "words"),
    [
        ('{"type": "txt"}', "type", f"'txt' is not one of {TYPES}"),
        ('{"id": "a"}', "type", TYPES),
        ('{"type": "text", "text": 7}', "text", "must be a string"),
        ('{"type": "text", "id": 7, "text": "a"}', "id", "at most 64 characters"),
        ('{"type": "start", "temperature": "hot"}', "temperature", "valid number"),
        ('{"type": "start", "sample_rate": "fast"}', "sample_rate", "valid integer"),
        ('{"type": "flush", "id": "nobody"}', "id", "'nobody'"),
        ('{"type": "cancel", "played_ms": "soon"}', "played_ms", "milliseconds"),
        ('{"type": "cancel", "played_ms": true}', "played_ms", "milliseconds"),
        ('{"type": "cancel", "played_ms": NaN}', "played_ms", "milliseconds"),
        ('{"type": "cancel", "played_ms": -Infinity}', "played_ms", "milliseconds"),
        ('{"type": "cancel", "played_ms": 1e999}', "played_ms", "milliseconds"),
        ('{"type": "cancel", "played_ms": 1' + "0" * 400 + "}", "played_ms", "milliseconds"),
        ('{"type": "cancel", "played_ms": -1}', "played_ms", "milliseconds"),
        ('{"type": "cancel", "played_ms": 1' + "0" * 5000 + "}", None, "not JSON"),
        ("no json", None, "not JSON"),
        ("[]", None, "not an object"),
        (DEEP, None, "nested too deeply"),
    ],
)
def test_an_error_names_the_field_and_what_is_allowed(
    socket: WebSocketTestSession, message: str, param: str | None, words: str
) -> None:
    reply = answer(socket, message)
    assert reply["type"] == "error"
    assert reply["error"]["param"] == param
    assert words in reply["error"]["message"]
    assert "hot" not in json.dumps(reply)
    assert answer(socket, '{"type": "ping"}') == {"type": "pong"}


def test_bytes_are_told_to_be_text(socket: WebSocketTestSession) -> None:
    socket.send_bytes(b"\x00\x01")
    assert "not JSON" in socket.receive_json()["error"]["message"]
