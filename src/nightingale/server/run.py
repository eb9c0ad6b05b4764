"""A server from its first worker to its last word."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import FrameType

import uvicorn

from nightingale.errors import NightingaleError
from nightingale.server import wyoming
from nightingale.server.app import make_app
from nightingale.server.dispatch import Dispatcher, Limits
from nightingale.server.drain import drain
from nightingale.server.front import Config, Front
from nightingale.server.keys import Keys
from nightingale.server.meters import Meters
from nightingale.server.protocol import WebSocketProtocol, http_protocol
from nightingale.server.scratch import private_folder
from nightingale.server.supervisor import Recipe, Supervisor
from nightingale.server.voices import Voices

log = logging.getLogger("nightingale.run")

_PING_S = 20.0
_CLOSE_S = 0.2  # for connections to close, at the limit of the drain


@dataclass(frozen=True, slots=True)
class Plans:
    """All that was decided before it started, and the sockets that listen already."""

    config: Config
    recipe: Recipe
    limits: Limits
    keys: Keys
    drain_s: float = 30.0
    http: list[socket.socket] = field(default_factory=list)
    wyoming: list[socket.socket] = field(default_factory=list)
    wyoming_off: str = ""  # why there are none
    announce: Callable[[], None] = lambda: None  # called when requests are answered


async def run(plans: Plans) -> None:
    """Until SIGTERM or SIGINT: then nobody new is let in, and who speaks may finish."""
    with private_folder() as folder:
        if not plans.wyoming:
            log.info("Wyoming is off", extra={"reason": plans.wyoming_off})
        dispatcher = Dispatcher(Supervisor(plans.recipe, folder), plans.limits)
        try:
            if not await _start(dispatcher):
                return
            voices = Voices(plans.recipe.home / "voices")
            front = Front(plans.config, dispatcher, voices, plans.keys, Meters(dispatcher))
            listening = [await wyoming.listen(front, listener) for listener in plans.wyoming]
            server = _Server(_uvicorn(front, plans), front, plans, listening)
            gc.freeze()  # what is here stays: looking through it is 40 ms in which all wait
            await server.serve(sockets=plans.http)
            await front.cloner.stop()
        finally:
            await dispatcher.stop(drain_s=0.0)


async def _start(dispatcher: Dispatcher) -> bool:
    """Load the model; False if a signal came first."""
    loop, starting = asyncio.get_running_loop(), asyncio.ensure_future(dispatcher.start())

    def stop(_number: int, _frame: FrameType | None) -> None:
        dispatcher.drain()
        loop.call_soon_threadsafe(starting.cancel)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)  # kept: uvicorn raises the signal again when it has closed
    try:
        await starting
    except (asyncio.CancelledError, NightingaleError):
        if not dispatcher.is_draining:
            raise
        return False
    return True


class _Server(uvicorn.Server):
    """Announces when it is ready, and drains at the first signal; at the second it exits at once.

    uvicorn's own shutdown cuts WebSockets off, so it begins when nothing is under way any more. The
    dispatcher is notified of a signal before anything else happens: one to the whole process group
    (systemd, timeout) ends the worker as well, and its death must not be answered with a new one.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        front: Front,
        plans: Plans,
        listening: Sequence[asyncio.Server],
    ) -> None:
        super().__init__(config)
        self._front, self._plans, self._listening = front, plans, listening
        self._draining: asyncio.Task[None] | None = None
        self._n_signals = 0
        self._loop = asyncio.get_running_loop()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._front.dispatcher.is_draining:  # a signal between loading and here
            self.should_exit = True
        else:
            self._plans.announce()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self._front.dispatcher.drain()
        self._n_signals += 1
        if self._n_signals > 1 or not self.started:
            self.should_exit = self.force_exit = True
        else:
            self._loop.call_soon_threadsafe(self._begin_drain)

    def _begin_drain(self) -> None:
        for server in self._listening:
            server.close()
        self._draining = asyncio.create_task(self._drain())

    async def _drain(self) -> None:
        """Readiness is false already, and new requests are refused while this goes on."""
        until = time.monotonic() + self._plans.drain_s
        try:
            await drain(self._front, self._plans.drain_s)
        finally:
            left_s = max(_CLOSE_S, until - time.monotonic())  # for other requests: uploads, lists
            self.config.timeout_graceful_shutdown = left_s  # type: ignore[assignment]
            self.should_exit = True


def _uvicorn(front: Front, plans: Plans) -> uvicorn.Config:
    return uvicorn.Config(
        make_app(front),
        host=plans.config.host,
        port=plans.config.port,
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="off",
        http=http_protocol(front.connections),
        ws=WebSocketProtocol,
        timeout_keep_alive=plans.config.connections.keep_alive_s,
        timeout_graceful_shutdown=int(plans.drain_s),
        ws_max_size=plans.config.max_json,
        ws_per_message_deflate=False,
        ws_ping_interval=_PING_S,
        ws_ping_timeout=_PING_S,
    )
