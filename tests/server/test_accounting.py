"""Every utterance leaves one log line and one count, by whatever protocol and however it ends."""

from __future__ import annotations

import json
import time
from typing import Any

import httpx
import pytest
from wyoming.audio import AudioStop
from wyoming.error import Error
from wyoming.tts import Synthesize, SynthesizeVoice

from nightingale.errors import BusyError, TextError, WorkerError
from nightingale.server.accounting import ending_of
from nightingale.server.api_errors import APIError
from tests.server.conftest import Subject
from tests.server.running import Server
from tests.server.test_websocket import calling
from tests.server.test_wyoming import converse

TEXT = "Seven birds."


@pytest.mark.parametrize(
    ("error", "ending"),
    [
        (ConnectionResetError(), "gone"),
        (TimeoutError(), "gone"),  # an OSError: nothing was read for too long
        (BusyError("full"), "rejected"),
        (TextError("empty"), "refused"),
        (APIError(416, "out_of_range", ""), "refused"),
        (WorkerError("died"), "failed"),
        (RuntimeError("a bug"), "failed"),
    ],
)
def test_an_error_has_one_ending(error: Exception, ending: str) -> None:
    assert ending_of(error) == ending


def lines(server: Server, n: int, since: int) -> list[dict[str, Any]]:
    """The next lines about utterances; they are written when it is over, so they may be late."""
    for _ in range(200):
        written = [json.loads(line) for line in server.log.read_text().splitlines()[since:]]
        found = [line for line in written if line["event"] in ("spoken", "not spoken")]
        if len(found) >= n:
            break
        time.sleep(0.1)
    assert len(found) == n, found
    return found


def count(server: Server, ending: str) -> float:
    return server.meter(f'requests_total{{ending="{ending}"}}')


@pytest.mark.slow
def test_all_protocols_write_the_same_line(server: Server, subject: Subject) -> None:
    if subject.options:
        pytest.skip("Wyoming has no way to bound a model that never ends")
    since = len(server.log.read_text().splitlines())
    n_spoken, n_gone = count(server, "stop"), count(server, "gone")
    server.speak(TEXT)
    with calling(server) as caller:
        caller.start()
        caller.say("text", text=TEXT)
        caller.say("end")
        assert [caller.hear()["type"] for _ in range(2)] == ["started", "done"]
    converse(server, [Synthesize(text=TEXT)], AudioStop)
    spoken = lines(server, 3, since)
    assert [line["protocol"] for line in spoken] == ["http", "websocket", "wyoming"]
    assert all(line.keys() == spoken[0].keys() for line in spoken)
    assert all(line["characters"] == len(TEXT) and line["seconds"] > 0 for line in spoken)
    assert all(line["ending"] == "stop" for line in spoken)
    assert count(server, "stop") == n_spoken + 3
    assert TEXT not in server.log.read_text()

    since = len(server.log.read_text().splitlines())
    with calling(server) as caller:
        caller.start()
        caller.say("text", text=" ".join([TEXT] * 50))
        assert caller.hear()["type"] == "started"
    assert lines(server, 1, since)[0]["ending"] == "gone"
    assert count(server, "gone") == n_gone + 1
    wrong = Synthesize(text=TEXT, voice=SynthesizeVoice(name="nobody"))
    assert converse(server, [wrong], Error)  # refused before it is an utterance: no line
    assert httpx.get(f"{server.url}/health/live").status_code == 200
