"""Whatever is said in whatever order, each utterance ends exactly once and the connection lives."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import ExitStack
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test
from websockets.sync.client import connect

from tests.server.running import Server

pytestmark = pytest.mark.slow

PIECES = ["Yes. ", "No", " and so", ", well, ", "", "?!", "\f", "Ünïcödé 7. ", "a" * 300]
names = st.sampled_from(["a", "b", "c"])
junk = st.sampled_from(
    ["", "{", "null", "7", '{"type":"text","id":"z","text":7}', '{"id":"a"}',
     '{"type":"start","id":"z","seed":"x"}', '{"type":"cancel","id":"z","played_ms":"x"}',
     '{"type":"of the future"}']
)  # fmt: skip


class Conversation(RuleBasedStateMachine):
    """Says anything; counts what it began and what ended."""

    server: Server

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        address = f"ws{self.server.url[4:]}/ws/tts"
        self.socket = self.stack.enter_context(connect(address, ping_interval=None))
        self.n_turns: Counter[str] = Counter()
        self.begun: set[str] = set()

    def say(self, kind: str, name: str, **fields: Any) -> None:
        self.socket.send(json.dumps({"type": kind, "id": name, **fields}))

    def current(self, name: str) -> str:
        """An id is used once, so that each end can be told from the next."""
        return f"{name}{self.n_turns[name]}"

    @rule(name=names, seed=st.integers(-1, 5), temperature=st.sampled_from([0.0, 0.8, 99.0]))
    def start(self, name: str, seed: int, temperature: float) -> None:
        fields = {**self.server.options, "seed": seed, "temperature": temperature, "max_tokens": 30}
        self.say("start", self.current(name), **fields)
        self.begun.add(self.current(name))
        if temperature > 10:  # refused: text would begin another one under the same id
            self.n_turns[name] += 1

    @rule(name=names, piece=st.sampled_from(PIECES))
    def text(self, name: str, piece: str) -> None:
        if self.current(name) in self.begun:
            self.say("text", self.current(name), text=piece)

    @rule(name=names)
    def flush(self, name: str) -> None:
        self.say("flush", self.current(name))

    @rule(name=names, kind=st.sampled_from(["end", "cancel"]))
    def finish(self, name: str, kind: str) -> None:
        self.say(kind, self.current(name))
        if self.current(name) in self.begun:
            self.n_turns[name] += 1

    @rule(text=junk)
    def mumble(self, text: str) -> None:
        self.socket.send(text)

    def teardown(self) -> None:
        with self.stack:
            for name in self.begun:
                self.say("cancel", name)
            ends: Counter[str] = Counter()
            while ends.keys() != self.begun:
                message = json.loads(self.socket.recv(timeout=60))
                if message["type"] == "audio":
                    assert isinstance(self.socket.recv(timeout=60), bytes)
                    assert ends[message["id"]] == 0, "sound behind the end"
                elif message["type"] in ("done", "cancelled"):
                    ends[message["id"]] += 1
                elif message["type"] == "error" and message["is_over"]:
                    is_unknown = message["error"]["code"] == "not_found"
                    ends[message["id"]] += not is_unknown and message["id"] in self.begun
                ends = +ends
            self.socket.send('{"type": "ping"}')
            while (last := json.loads(self.socket.recv(timeout=60)))["type"] != "pong":
                assert last["type"] == "error", last
            assert set(ends.values()) <= {1}


def test_any_conversation_ends_well(server: Server, request: pytest.FixtureRequest) -> None:
    Conversation.server = server
    run_state_machine_as_test(
        Conversation,
        settings=settings(
            max_examples=60,
            stateful_step_count=15,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
