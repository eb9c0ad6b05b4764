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
from nightingale.server.context import HttpConfig, ServerContext
from nightingale.server.dispatch import Dispatcher, Limits
from nightingale.server.drain import drain
from nightingale.server.http_protocol import WebSocketProtocol, http_protocol
from nightingale.server.keys import Keys
from nightingale.server.metrics import Metrics
from nightingale.server.scratch import private_folder
from nightingale.server.supervisor import Supervisor, WorkerConfig
from nightingale.server.voices import Voices, built_in_voices
from nightingale.text.pronunciation import FILE_NAME, read_file

log = logging.getLogger("nightingale.run")

_PING_S = 20.0
_CLOSE_S = 0.2  # for connections to close, at the limit of the drain
_CLOSING_S = 1.0  # of the drain, at most, for the last messages and the worker's end


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """All that was decided before it started, and the sockets that listen already."""

    http_config: HttpConfig
    worker_config: WorkerConfig
    limits: Limits
    keys: Keys
    drain_s: float = 30.0
    http: list[socket.socket] = field(default_factory=list)
    wyoming: list[socket.socket] = field(default_factory=list)
    wyoming_off: str = ""  # why there are none
    announce: Callable[[], None] = lambda: None  # called when requests are answered


async def run(config: ServerConfig) -> None:
    """Until SIGTERM or SIGINT: then nobody new is let in, and who speaks may finish."""
    with private_folder() as folder:
        dispatcher = Dispatcher(Supervisor(config.worker_config, folder), config.limits)
        try:
            if not await _start(dispatcher, config):
                return
            built_in = built_in_voices(dispatcher.hello.get("family"))
            voices = Voices(config.worker_config.home / "voices", built_in=built_in)
            context = ServerContext(
                config.http_config, dispatcher, voices, config.keys, Metrics(dispatcher),
                tuple(read_file(config.worker_config.home / FILE_NAME)),
            )  # fmt: skip
            listening = [await wyoming.listen(context, listener) for listener in config.wyoming]
            server = _Server(_uvicorn(context, config), context, config, listening)
            gc.freeze()  # what is here stays: looking through it is 40 ms in which all wait
            await server.serve(sockets=config.http)
            await context.cloner.stop()
        finally:
            await dispatcher.stop(drain_s=0.0)


async def _start(dispatcher: Dispatcher, config: ServerConfig) -> bool:
    """Load the model; False if a signal came first."""
    loop, starting = asyncio.get_running_loop(), asyncio.ensure_future(dispatcher.start())

    def stop(_number: int, _frame: FrameType | None) -> None:
        dispatcher.drain()
        loop.call_soon_threadsafe(starting.cancel)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)  # kept: uvicorn raises the signal again when it has closed
    if not config.wyoming:
        log.info("Wyoming is off", extra={"reason": config.wyoming_off})
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
        uvicorn_config: uvicorn.Config,
        context: ServerContext,
        config: ServerConfig,
        listening: Sequence[asyncio.Server],
    ) -> None:
        super().__init__(uvicorn_config)
        self._context, self._config, self._listening = context, config, listening
        self._draining: asyncio.Task[None] | None = None
        self._n_signals = 0
        self._loop = asyncio.get_running_loop()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._context.dispatcher.is_draining:  # a signal between loading and here
            self.should_exit = True
        else:
            self._config.announce()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002
        self._context.dispatcher.drain()
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
        until = time.monotonic() + self._config.drain_s
        try:
            closing_s = min(_CLOSING_S, self._config.drain_s / 4)
            await drain(self._context, self._config.drain_s - closing_s)
        finally:
            left_s = max(_CLOSE_S, until - time.monotonic())  # for other requests: uploads, lists
            self.config.timeout_graceful_shutdown = left_s  # type: ignore[assignment]
            self.should_exit = True


def _uvicorn(context: ServerContext, config: ServerConfig) -> uvicorn.Config:
    return uvicorn.Config(
        make_app(context),
        host=config.http_config.host,
        port=config.http_config.port,
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="off",
        http=http_protocol(context.connections),
        ws=WebSocketProtocol,
        timeout_keep_alive=config.http_config.connections.keep_alive_s,
        timeout_graceful_shutdown=int(config.drain_s),
        ws_max_size=config.http_config.max_json,
        ws_per_message_deflate=False,
        ws_ping_interval=_PING_S,
        ws_ping_timeout=_PING_S,
    )
