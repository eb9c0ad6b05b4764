"""Who neither speaks nor listens holds no slot: others are served as if nobody was there."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path

import httpx
import pytest
from websockets.sync.client import connect
from wyoming.client import AsyncTcpClient
from wyoming.tts import SynthesizeStart

from benchmarks.clients import CLIENTS
from tests.server.conftest import Subject
from tests.server.running import Server, serving

pytestmark = pytest.mark.slow

TEXT = "The quick brown fox jumps over the lazy dog."


def until(condition: Callable[[], bool], seconds: float = 60.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)


def test_silent_websockets_hold_no_slot(server: Server) -> None:
    expected = server.speak(TEXT, seed=2)
    with ExitStack() as stack:
        for _ in range(2):
            url = f"ws{server.url[4:]}/v1/audio/speech/stream"
            socket = stack.enter_context(connect(url))
            for n in range(8):
                socket.send(json.dumps({"type": "start", "id": str(n)}))
                assert json.loads(socket.recv(timeout=10))["type"] == "started"
        socket.send(json.dumps({"type": "text", "id": "0", "text": "Half a sen"}))
        until(lambda: server.meter("paused") == 16)
        assert server.meter("speaking") == 0
        assert server.speak(TEXT, seed=2) == expected
        assert httpx.get(f"{server.url}/health", timeout=60).status_code == 200
        socket.send(json.dumps({"type": "text", "id": "0", "text": "tence."}))
        socket.send(json.dumps({"type": "end", "id": "0"}))
        kinds = []
        while "done" not in kinds:
            message = socket.recv(timeout=60)
            kinds += [json.loads(message)["type"]] if isinstance(message, str) else []
    until(lambda: server.meter("paused") == 0)


def test_too_many_open_utterances_are_refused(server: Server) -> None:
    with ExitStack() as stack:
        kinds: list[str] = []
        for _ in range(4):
            url = f"ws{server.url[4:]}/v1/audio/speech/stream"
            socket = stack.enter_context(connect(url))
            for n in range(8):
                socket.send(json.dumps({"type": "start", "id": str(n)}))
                kinds.append(json.loads(socket.recv(timeout=10))["type"])
        assert kinds == ["started"] * 24 + ["error"] * 8, "three quarters of 32 for one address"
    until(lambda: server.meter("paused") == 0)


def test_silent_wyoming_peers_hold_no_slot(server: Server) -> None:
    async def main() -> None:
        async with AsyncExitStack() as stack:
            for _ in range(8):
                peer = AsyncTcpClient("127.0.0.1", server.wyoming_port)
                await stack.enter_async_context(peer)
                await peer.write_event(SynthesizeStart().event())
            await asyncio.to_thread(until, lambda: server.meter("paused") == 8)
            assert await asyncio.to_thread(server.speak, TEXT)

    asyncio.run(main())
    until(lambda: server.meter("paused") == 0)


def test_a_reader_that_does_not_read_holds_no_slot(subject: Subject, tmp_path: Path) -> None:
    flags = ("--max-requests", "1", "--max-waiting", "0")

    async def main(server: Server) -> None:
        dead = CLIENTS["http"](server)
        await dead.connect(is_small=True)
        await dead.ask(" ".join([TEXT] * 40))
        await dead.first_audio()
        # Served once the dead one has its buffers full and its playback is late.
        await asyncio.to_thread(until, lambda: server.meter("paused") == 1, 120)
        await asyncio.to_thread(until, lambda: _is_served(server), 60)
        await dead.close()

    with serving(subject.folder, tmp_path, subject.options, *flags) as server:
        asyncio.run(main(server))


def _is_served(server: Server) -> bool:
    reply = httpx.post(f"{server.url}/v1/audio/speech", json=server.body(TEXT), timeout=60)
    return reply.status_code == 200
