"""A server from its first worker to its last word."""

from __future__ import annotations

import asyncio
import gc
import signal
import tempfile
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from nightingale.server import wyoming
from nightingale.server.app import make_app
from nightingale.server.dispatch import Dispatcher, Limits
from nightingale.server.front import Config, Front
from nightingale.server.keys import Keys
from nightingale.server.meters import Meters
from nightingale.server.supervisor import Recipe, Supervisor
from nightingale.server.voices import Voices

_MAX_MESSAGE = 2**20  # bytes of one WebSocket message
_PING_S = 20.0


@dataclass(frozen=True, slots=True)
class Plans:
    """All that was decided before it started."""

    config: Config
    recipe: Recipe
    limits: Limits
    keys: Keys
    drain_s: float = 30.0
    wyoming_port: int = 0  # 0: none


async def run(plans: Plans) -> None:
    """Until SIGTERM or SIGINT: then nobody new is let in, and who speaks may finish."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)  # uvicorn raises it again when it has closed
    with tempfile.TemporaryDirectory(prefix="nightingale-") as folder:
        dispatcher = Dispatcher(Supervisor(plans.recipe, Path(folder)), plans.limits)
        await dispatcher.start()
        try:
            voices = Voices(plans.recipe.home / "voices")
            front = Front(plans.config, dispatcher, voices, plans.keys, Meters(dispatcher))
            homes = await _listen_for_homes(front, plans.wyoming_port)
            server = uvicorn.Server(_uvicorn(front, plans))
            gc.freeze()  # what is here stays: looking through it is 40 ms in which all wait
            await server.serve()
            if homes is not None:
                homes.close()
        finally:
            await dispatcher.stop(drain_s=1.0)


async def _listen_for_homes(front: Front, port: int) -> asyncio.Server | None:
    """Wyoming knows no keys: where they are asked for, it is not spoken."""
    return await wyoming.listen(front, port) if port and not front.keys else None


def _uvicorn(front: Front, plans: Plans) -> uvicorn.Config:
    return uvicorn.Config(
        make_app(front),
        host=plans.config.host,
        port=plans.config.port,
        log_config=None,
        access_log=False,
        server_header=False,
        lifespan="off",
        timeout_graceful_shutdown=int(plans.drain_s),
        ws_max_size=_MAX_MESSAGE,
        ws_per_message_deflate=False,
        ws_ping_interval=_PING_S,
        ws_ping_timeout=_PING_S,
    )
