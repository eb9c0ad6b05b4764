"""One replica: the server's application, with its own worker process for T3 and S3Gen together.

Everything that `nightingale serve` has but the sockets, which are the ingress's. Knows nothing of
Ray.
"""

from __future__ import annotations

import os
import time
from collections.abc import MutableMapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from nightingale.fleet.config import FleetConfig
from nightingale.fleet.scaling import FULL_SLACK_S
from nightingale.fleet.voices import SharedFolder
from nightingale.server import log
from nightingale.server.app import make_app
from nightingale.server.context import HttpConfig, ServerContext
from nightingale.server.dispatch import Dispatcher, Limits
from nightingale.server.drain import drain
from nightingale.server.health import readiness
from nightingale.server.keys import Keys
from nightingale.server.metrics import Metrics
from nightingale.server.middleware import App, Receive, Scope, Send
from nightingale.server.scratch import private_folder
from nightingale.server.supervisor import Supervisor, WorkerConfig
from nightingale.server.voices import Voices, built_in_voices
from nightingale.settings import Settings, secrets_in
from nightingale.text.pronunciation import FILE_NAME, read_file


class Replica:
    """From its first worker to its last word."""

    def __init__(self, config: FleetConfig) -> None:
        self.config = config
        settings = Settings.read(os.environ)
        self._home = Path(config.home).expanduser() if config.home else settings.home
        self._keys = Keys.read(None, settings.api_key)
        self._scratch = ExitStack()
        self.context: ServerContext

    async def start(self, name: str) -> App:
        """Load the model; the ASGI application, whose answers carry the replica's name."""
        log.start("info", "json")
        for secret in secrets_in(list(os.environ)):  # the worker process needs none of them
            del os.environ[secret]
        config, folder = self.config, self._scratch.enter_context(private_folder())
        limits = Limits(
            config.max_streams, config.max_waiting, n_open=config.max_open, n_keys=len(self._keys),
            max_factor=config.max_factor,
        )  # fmt: skip
        worker = WorkerConfig(
            self._home, config.model, config.backend, config.device, config.decoder, config.plan,
            config.watermark, config.threads, limits.n_at_worker,
        )  # fmt: skip
        dispatcher = Dispatcher(Supervisor(worker, folder), limits)
        await dispatcher.start()
        voices = self._voices(folder, dispatcher.hello.get("family"))
        self.context = ServerContext(
            # Whoever reaches the ingress reaches us: its host name is the operator's business.
            HttpConfig(host="0.0.0.0", max_characters=config.max_characters, allowed_hosts=("*",)),
            dispatcher, voices, self._keys, Metrics(dispatcher),
            tuple(read_file(self._home / FILE_NAME)),
        )  # fmt: skip
        return _named(make_app(self.context), name)

    async def stop(self) -> None:
        """Open streams may end; then the worker goes."""
        await drain(self.context, self.config.drain_s)
        await self.context.cloner.stop()
        await self.context.dispatcher.stop(drain_s=0.0)
        self._scratch.close()

    def check(self) -> None:
        """Raises if this replica should be replaced; one whose worker restarts is not."""
        reason = readiness(self.context.dispatcher).reason
        if reason.startswith("circuit_breaker"):
            raise RuntimeError(reason)

    def load(self) -> dict[str, float]:
        """For autoscaling: live streams, and playback time that the tightest of them has left."""
        dispatcher = self.context.dispatcher
        slack_s = dispatcher.playback_slack_s(time.monotonic())
        return {
            "streams": float(dispatcher.n_open),
            "slack_s": FULL_SLACK_S if slack_s is None else min(FULL_SLACK_S, slack_s),
        }

    def _voices(self, scratch: Path, family: object) -> Voices:
        built_in = built_in_voices(family)
        store = self.config.voices
        if store is None:
            return Voices(self._home / "voices", built_in=built_in)
        root = scratch / "voices"

        def open_folder(folder: Path) -> SharedFolder:
            inside = folder.relative_to(root).as_posix()
            return SharedFolder(folder, store if inside == "." else f"{store}/{inside}")

        return Voices(root, open_folder, built_in)


def _named(app: App, name: str) -> App:
    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        async def stamped(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"x-replica", name.encode())]
            await send(message)

        if scope["type"] == "lifespan":  # Ray waits for an answer
            await _live(receive, send)
        else:
            await app(scope, receive, stamped if scope["type"] == "http" else send)

    return call


async def _live(receive: Receive, send: Send) -> None:
    """The replica starts and stops the server itself."""
    while (event := (await receive())["type"]) != "lifespan.shutdown":
        await send({"type": f"{event}.complete"})
    await send({"type": "lifespan.shutdown.complete"})
