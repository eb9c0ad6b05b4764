"""Text in pieces in, sound and words out, over a real WebSocket."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.sync.client import ClientConnection, connect
from websockets.typing import Origin

from nightingale.audio.encode import encode
from nightingale.text.split import CUT
from tests.server.conftest import Solo, Subject
from tests.server.running import Server, serving

pytestmark = pytest.mark.slow

TEXT = "The quick brown fox jumps over the lazy dog."
PIECES = ["Sure, I ", "can do th", "at. It takes a ", "while."]


@dataclass
class WyomingSession:
    """A client that keeps what it hears, by id."""

    socket: ClientConnection
    options: dict[str, Any]
    sound: dict[str, bytes] = field(default_factory=dict)
    words: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def say(self, kind: str, name: str = "", **fields: Any) -> None:
        self.socket.send(json.dumps({"type": kind, "id": name, **fields}))

    def start(self, name: str = "", **fields: Any) -> None:
        self.say("start", name, **{**self.options, **fields})

    def hear(self) -> dict[str, Any]:
        """The next message that is not sound or words, which are kept."""
        while True:
            message: dict[str, Any] = json.loads(self.socket.recv(timeout=60))
            if message["type"] == "audio":
                data = self.socket.recv(timeout=60)
                assert isinstance(data, bytes)
                self.sound[message["id"]] = self.sound.get(message["id"], b"") + data
            elif message["type"] == "words":
                self.words.setdefault(message["id"], []).extend(message["words"])
            else:
                return message


@contextmanager
def calling(server: Server) -> Iterator[WyomingSession]:
    with connect(f"ws{server.url[4:]}/v1/audio/speech/stream") as socket:
        yield WyomingSession(socket, server.options)


def pcm(solo: Solo, pieces: list[str], **options: Any) -> bytes:
    return b"".join(encode([solo(pieces, **options)], "pcm"))


def test_text_in_pieces_becomes_sound_and_words(server: Server, solo: Solo) -> None:
    with calling(server) as caller:
        caller.start(seed=4, speed=1.25, language="auto")
        for piece in PIECES:
            caller.say("text", text=piece)
        caller.say("end")
        assert caller.hear()["type"] == "started"
        done = caller.hear()
    assert done["type"] == "done", done
    assert caller.sound[""] == pcm(solo, PIECES, seed=4, speed=1.25)
    assert done["language"] == "en"
    assert 0 < done["language_confidence"] <= 1
    assert done["bytes"] == len(caller.sound[""])
    said = " ".join(word["word"] for word in caller.words.get("", []))
    if said:
        assert said == "".join(PIECES)


def test_a_flush_is_heard_before_the_text_is_over(server: Server, solo: Solo) -> None:
    with calling(server) as caller:
        caller.start()
        caller.say("text", text="He said that he")
        caller.say("flush")
        assert caller.hear()["type"] == "started"
        while not caller.sound:
            assert json.loads(caller.socket.recv(timeout=60))["type"] in ("audio", "words")
            data = caller.socket.recv(timeout=60)
            assert isinstance(data, bytes)
            caller.sound[""] = data
        caller.say("text", text="would come.")
        caller.say("end")
        assert caller.hear()["type"] == "done"
    assert caller.sound[""] == pcm(solo, ["He said that he" + CUT + "would come."])


def test_the_last_word_is_reported_after_a_flush(server: Server, subject: Subject) -> None:
    if subject.options:
        pytest.skip("a model of random weights does not know its words")
    with calling(server) as caller:
        caller.start(seed=1)
        caller.say("text", text="Yes, come in")
        caller.say("flush")
        words: list[str] = []
        while "in" not in words:  # nothing else is sent until it came
            message = caller.socket.recv(timeout=60)
            if isinstance(message, str) and json.loads(message)["type"] == "words":
                words += [word["word"] for word in json.loads(message)["words"]]
        caller.say("text", text=" now.")
        caller.say("end")
        assert caller.hear()["type"] == "done"
    assert [*words, *(word["word"] for word in caller.words[""])] == ["Yes,", "come", "in", "now."]


def test_a_cancel_is_answered_with_the_last_word_and_silence(server: Server) -> None:
    with calling(server) as caller:
        caller.start("a")
        caller.say("text", "a", text=" ".join([TEXT] * 20))
        caller.say("end", "a")
        assert caller.hear()["type"] == "started"
        while len(caller.sound.get("a", b"")) < 24_000:
            message = json.loads(caller.socket.recv(timeout=60))
            if message["type"] == "audio":
                data = caller.socket.recv(timeout=60)
                assert isinstance(data, bytes)
                caller.sound["a"] = caller.sound.get("a", b"") + data
        caller.say("cancel", "a", played_ms=300)
        cancelled = caller.hear()
        assert cancelled["type"] == "cancelled"
        assert cancelled["seconds"] <= 0.3
        last = cancelled["last_word"]
        if last is not None:
            assert last["start"] <= 0.3
            assert cancelled["spoken"].endswith(last["word"])
        n_heard = len(caller.sound["a"])
        caller.start("b", seed=1)  # the next one, at once
        caller.say("text", "b", text=TEXT)
        caller.say("end", "b")
        assert (caller.hear()["type"], caller.hear()["type"]) == ("started", "done")
        assert len(caller.sound["a"]) == n_heard
        assert caller.sound["b"]


def test_several_utterances_share_a_connection(server: Server, solo: Solo) -> None:
    names = ["a", "b", "c"]
    with calling(server) as caller:
        for seed, name in enumerate(names):
            caller.start(name, seed=seed)
        for piece in PIECES:
            for name in names:
                caller.say("text", name, text=piece)
        for name in names:
            caller.say("end", name)
        ends = [caller.hear() for _ in range(6)]
    assert sorted(end["id"] for end in ends if end["type"] == "done") == names
    for seed, name in enumerate(names):
        assert caller.sound[name] == pcm(solo, PIECES, seed=seed)


@pytest.mark.parametrize(
    "wrong",
    [
        "no json",
        "[]",
        '{"type": 7}',
        '{"type": "text"}',
        '{"type": "flush", "id": "nobody"}',
        '{"type": "cancel", "id": 7}',
        '{"type": "start", "voice": "nobody"}',
        '{"type": "start", "sample_rate": "fast"}',
        '{"type": "start", "response_format": "tape"}',
    ],
)
def test_a_mistake_is_told_and_the_connection_lives(server: Server, wrong: str) -> None:
    with calling(server) as caller:
        caller.socket.send(wrong)
        assert caller.hear()["type"] == "error"
        caller.say("ping")
        assert caller.hear()["type"] == "pong"


def test_what_cannot_be_spoken_ends_in_an_error(server: Server) -> None:
    with calling(server) as caller:
        caller.start(temperature=99)
        assert "temperature" in caller.hear()["error"]["message"]
        caller.start("long")
        caller.say("text", "long", text="a" * 20_001)
        kinds = [caller.hear()["type"] for _ in range(2)]
        assert sorted(kinds) == ["error", "started"]


def test_who_hangs_up_is_not_spoken_to(server: Server) -> None:
    with calling(server) as caller:
        caller.start()
        caller.say("text", text=" ".join([TEXT] * 20))
        assert caller.hear()["type"] == "started"
    for _ in range(100):
        if httpx.get(f"{server.url}/metrics").text.count("nightingale_speaking 0.0"):
            return
    pytest.fail("still speaking")


def test_a_huge_message_closes_the_connection(server: Server) -> None:
    with calling(server) as caller, pytest.raises(ConnectionClosed):
        caller.say("text", text="a" * 2**21)
        caller.hear()


def test_a_stranger_is_turned_away(server: Server, subject: Subject, tmp_path: Any) -> None:
    address = f"ws{server.url[4:]}/ws/tts"
    with pytest.raises(InvalidStatus), connect(address, origin=Origin("https://evil.example")):
        pass
    with serving(subject.folder, tmp_path, {}, NIGHTINGALE_API_KEY="sesame") as locked:
        address = f"ws{locked.url[4:]}/ws/tts"
        with pytest.raises(InvalidStatus), connect(address):
            pass
        with connect(address, additional_headers={"authorization": "Bearer sesame"}) as socket:
            socket.send('{"type": "ping"}')
            assert json.loads(socket.recv())["type"] == "pong"
