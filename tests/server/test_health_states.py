"""The truth of health checks: what each says in each state of the server. Real processes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from nightingale.server import breaker
from nightingale.server.app import make_app
from nightingale.server.context import HttpConfig, ServerContext
from nightingale.server.dispatch import Dispatcher, Limits
from nightingale.server.keys import Keys
from nightingale.server.metrics import Metrics
from nightingale.server.supervisor import Supervisor, WorkerState
from nightingale.server.voices import Voices
from nightingale.server.worker_request import WorkerRequest
from tests.server.scripted import Scripted

BODY = {"input": "Hello.", "response_format": "pcm"}


class Running:
    """A server without its sockets, and a worker without a model."""

    def __init__(self, dispatcher: Dispatcher, client: httpx.AsyncClient) -> None:
        self.dispatcher, self.client = dispatcher, client

    async def status(self) -> tuple[int, int, int]:
        """Live, ready, deep."""
        paths = ("/health/live", "/health/ready", "/health")
        live, ready, deep = [(await self.client.get(path)).status_code for path in paths]
        return live, ready, deep

    async def until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not is_so():
                await asyncio.sleep(0.01)

    async def until_state(self, state: WorkerState) -> None:
        await self.until(lambda: self.dispatcher.supervisor.state is state)


@asynccontextmanager
async def running(folder: Path, behaviour: str, limits: Limits) -> AsyncIterator[Running]:
    dispatcher = Dispatcher(Supervisor(Scripted(folder, behaviour=behaviour), folder), limits)
    context = ServerContext(
        HttpConfig(),
        dispatcher,
        Voices(folder / "voices"),
        Keys.read(None, None),
        Metrics(dispatcher),
    )
    transport = httpx.ASGITransport(app=make_app(context))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        try:
            yield Running(dispatcher, client)
        finally:
            await dispatcher.stop(0.0)


async def ready(it: Running) -> None:
    await it.dispatcher.start()


async def spoken(it: Running) -> None:
    await it.dispatcher.start()
    assert (await it.client.post("/v1/audio/speech", json=BODY)).status_code == 200


async def full(it: Running) -> None:
    """All places are held by streams whose text does not come, and others wait."""
    await it.dispatcher.start()
    held = [it.dispatcher.speak(WorkerRequest({}, ["wait"], True, True)) for _ in range(2)]
    asyncio.get_running_loop().held = [asyncio.ensure_future(_hold(one)) for one in held]  # type: ignore[attr-defined]
    await asyncio.sleep(0.1)


async def _hold(context: Any) -> None:
    async with context:
        await asyncio.sleep(60)


async def idle(it: Running) -> None:
    await it.dispatcher.start()
    await it.until_state(WorkerState.IDLE)


async def draining(it: Running) -> None:
    await it.dispatcher.start()
    it.dispatcher.drain()


async def restarting(it: Running) -> None:
    """The first worker was killed, and the next ones report that they cannot start."""
    await it.dispatcher.start()
    it.dispatcher.supervisor.kill()
    await it.until_state(WorkerState.RESTARTING)


async def broken(it: Running) -> None:
    await restarting(it)
    await it.until_state(WorkerState.UNAVAILABLE)


async def on_trial(it: Running) -> None:
    """Behind an open breaker, a worker came up; whether it is of use is not known."""
    await it.dispatcher.start()
    for _ in range(breaker.MAX_FAILURES):
        it.dispatcher.supervisor.breaker.note_failure("it died")
    await it.until(lambda: it.dispatcher.supervisor.breaker.state == "half-open")


SHORT = {"FIRST_WAIT_S": 0.02, "FIRST_OPEN_S": 30.0}

TABLE: list[tuple[Callable[[Running], Awaitable[None]], str, dict[str, Any], tuple[int, int, int]]]
TABLE = [  # state, what the worker does, limits: live, ready, deep
    (ready, "well", {}, (200, 200, 200)),
    (spoken, "well", {}, (200, 200, 200)),
    (full, "well", {"n_speaking": 1, "n_waiting": 1}, (200, 200, 200)),
    (idle, "well", {"keep_alive_s": 0.05}, (200, 200, 200)),
    (draining, "well", {}, (200, 503, 503)),
    (restarting, "fails", {}, (200, 503, 503)),
    (restarting, "fails", {"keep_alive_s": 60.0}, (200, 503, 503)),
    (broken, "fails", {"keep_alive_s": 60.0}, (200, 503, 503)),
    (on_trial, "well", {}, (200, 503, 200)),
]


@pytest.mark.parametrize(
    ("state", "behaviour", "limits", "expected"),
    TABLE,
    ids=[f"{row[0].__name__}-{'-'.join(row[2])}" for row in TABLE],
)
def test_health_tells_the_truth(
    state: Callable[[Running], Awaitable[None]],
    behaviour: str,
    limits: dict[str, Any],
    expected: tuple[int, int, int],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, seconds in SHORT.items():
        monkeypatch.setattr(breaker, name, seconds)
    if state is on_trial:
        monkeypatch.setattr(breaker, "FIRST_OPEN_S", 0.1)
    if state is restarting:
        monkeypatch.setattr(breaker, "MAX_FAILURES", 1000)

    async def check() -> None:
        async with running(tmp_path, behaviour, Limits(**limits)) as it:
            await state(it)
            assert await it.status() == expected

    asyncio.run(asyncio.wait_for(check(), 60))


@pytest.mark.slow
def test_an_open_breaker_refuses_at_once_and_says_when_to_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, seconds in SHORT.items():
        monkeypatch.setattr(breaker, name, seconds)

    async def check() -> None:
        async with running(tmp_path, "fails", Limits()) as it:
            await broken(it)
            begun = time.monotonic()
            refused = await it.client.post("/v1/audio/speech", json=BODY)
            assert time.monotonic() - begun < 2.0
            assert refused.status_code == 503
            assert refused.json()["error"]["code"] == "worker_unavailable"
            assert 1 <= int(refused.headers["retry-after"]) <= 30
            health = (await it.client.get("/health")).json()
            assert health["reason"] == "circuit_breaker_open"
            assert health["worker"] == "unavailable"
            n_starts = it.dispatcher.supervisor.n_starts
            await asyncio.sleep(0.5)
            assert it.dispatcher.supervisor.n_starts == n_starts == breaker.MAX_FAILURES

    asyncio.run(asyncio.wait_for(check(), 60))


@pytest.mark.slow
def test_a_worker_that_dies_as_soon_as_it_listens_is_not_started_again_and_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody asks for anything; without a back-off there were 11 starts in 40 seconds."""
    for name, seconds in SHORT.items():
        monkeypatch.setattr(breaker, name, seconds)

    async def check() -> None:
        supervisor = Supervisor(Scripted(tmp_path, behaviour="dies at once"), tmp_path)
        await supervisor.ready()
        async with asyncio.timeout(20):
            while supervisor.state is not WorkerState.UNAVAILABLE:
                await asyncio.sleep(0.01)
        assert supervisor.n_starts == breaker.MAX_FAILURES
        await supervisor.stop()

    asyncio.run(asyncio.wait_for(check(), 60))


@pytest.mark.slow
def test_the_breaker_closes_when_a_trial_succeeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model was gone for a while, and is back."""
    monkeypatch.setattr(breaker, "FIRST_WAIT_S", 0.02)
    monkeypatch.setattr(breaker, "FIRST_OPEN_S", 0.2)

    async def check() -> None:
        async with running(tmp_path, "fails", Limits()) as it:
            await broken(it)
            (tmp_path / "started").unlink()  # the next one can start
            await it.until_state(WorkerState.READY)
            assert it.dispatcher.supervisor.breaker.state == "half-open"
            assert (await it.client.post("/v1/audio/speech", json=BODY)).status_code == 200
            assert it.dispatcher.supervisor.breaker.state == "closed"
            assert await it.status() == (200, 200, 200)

    asyncio.run(asyncio.wait_for(check(), 60))


def test_many_health_checks_share_one_canary(tmp_path: Path) -> None:
    async def check() -> None:
        async with running(tmp_path, "well", Limits()) as it:
            await it.dispatcher.start()
            before = next(it.dispatcher._numbers)
            replies = await asyncio.gather(*(it.client.get("/health") for _ in range(50)))
            assert {reply.status_code for reply in replies} == {200}
            assert next(it.dispatcher._numbers) - before == 2  # one, and this number

    asyncio.run(asyncio.wait_for(check(), 60))
