"""`nightingale serve`: speech for programs, over HTTP, WebSocket and Wyoming."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import typer

from nightingale.cli.configuration import read_config
from nightingale.cli.terminal import stderr
from nightingale.errors import MissingPackageError, OptionError
from nightingale.settings import Settings

_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600}
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/\s?#@]+|\*|null")
_HOST_NAME = re.compile(r"\*|(\*\.)?[a-z0-9_-]+(\.[a-z0-9_-]+)*|[0-9a-f]*:[0-9a-f:]*:[0-9a-f:.]*")


def _check_origins(given: list[str]) -> list[str]:
    origins = [origin.rstrip("/").lower() for origin in given]
    for origin in origins:
        if not _ORIGIN.fullmatch(origin):
            raise typer.BadParameter(f"{origin!r} is no origin; give a scheme and a host, as "
                                     "https://a.b or http://a.b:8080, or *")  # fmt: skip
    return origins


def _check_hosts(given: list[str]) -> list[str]:
    names = [name.lower() for name in given]
    for name in names:
        if not _HOST_NAME.fullmatch(name):
            raise typer.BadParameter(f"{name!r} is no host name; give it without scheme, port and "
                                     "path, as tts.example.org, *.example.org or *")  # fmt: skip
    return names


def serve(  # noqa: PLR0913, PLR0917
    context: typer.Context,
    config: Path | None = typer.Option(  # noqa: ARG001
        None, is_eager=True, callback=read_config, help="TOML file with values for these options."
    ),
    host: str = typer.Option("127.0.0.1", help="Where to listen; 0.0.0.0 is everywhere."),
    port: int = typer.Option(8004, help="Where SillyTavern looks for a Chatterbox server."),
    model: str | None = typer.Option(None, help="A pulled model, or a folder of its files."),
    plan: str = typer.Option("live", help="reference, balanced, fast, live or live-fast."),
    decoder: str | None = typer.Option(None, help="standard (10 steps) or meanflow (2 steps)."),
    device: str = typer.Option("auto", help="Where to compute."),
    threads: int | None = typer.Option(None, help="For computing; else as many as cores."),
    watermark: bool = typer.Option(True, help="Mark the sound as synthetic, inaudibly."),
    max_requests: int = typer.Option(8, min=1, max=1024, help="Spoken beside each other."),
    max_waiting: int = typer.Option(16, min=0, help="Who may wait; all others are refused."),
    max_characters: int = typer.Option(20_000, min=1, help="Of one request."),
    keep_alive: str = typer.Option(
        "-1", help="Let the model go when idle for so long (300, 5m, 2h); -1 keeps it."
    ),
    wyoming_port: int = typer.Option(10200, help="For Home Assistant, without a key; 0: none."),
    keys: Path | None = typer.Option(None, help="A TOML file of keys; see docs/server.md."),
    origin: list[str] = typer.Option(
        [],
        callback=_check_origins,
        help="Allowed browser origin (CORS), as https://a.b; repeatable.",
    ),
    allowed_host: list[str] = typer.Option(
        [],
        callback=_check_hosts,
        help="Allowed name in the Host header, as tts.example.org, *.example.org or *; repeatable. "
        "Needed behind a reverse proxy when listening on loopback.",
    ),
    drain: int = typer.Option(30, min=0, help="Seconds that streams may finish in at the end."),
    stall: float = typer.Option(60.0, min=0.1, help="Seconds to wait for one who takes nothing."),
    log_level: str = typer.Option("info", help="debug, info, warning or error."),
) -> None:
    """Serve speech to programs; loopback only, unless told otherwise."""
    settings: Settings = context.obj
    keep_alive_s = _seconds(keep_alive)
    try:
        from nightingale.server import log
        from nightingale.server.dispatch import Limits
        from nightingale.server.front import Config
        from nightingale.server.keys import Keys
        from nightingale.server.run import Plans, run
        from nightingale.server.supervisor import Recipe
    except ModuleNotFoundError as error:
        raise MissingPackageError(
            f"a server needs more packages ({error.name} is missing); get them with "
            "pip install 'nightingale-tts[server]'"
        ) from error
    plans = Plans(
        config=Config(
            host,
            port,
            max_characters,
            origins=tuple(origin),
            allowed_hosts=tuple(allowed_host),
            stall_s=stall,
        ),
        recipe=Recipe(
            home=settings.home,
            model=model,
            device=device,
            decoder=decoder,
            plan=plan,
            watermark=watermark,
            threads=threads,
            max_requests=2 * max_requests + 8,  # those that are being cancelled count there, too
        ),
        limits=Limits(max_requests, max_waiting, keep_alive_s),
        keys=Keys.read(keys, settings.api_key),
        drain_s=drain,
        wyoming_port=wyoming_port,
    )
    console = stderr()
    if not plans.config.is_local and not plans.keys:
        console.print(
            f"Anybody who can reach {host} can make it speak and clone voices: set "
            "NIGHTINGALE_API_KEY or give --keys.",
            style="yellow",
        )
    if console.is_terminal:
        console.print(f"Loading the model; then the page and the API are at http://{host}:{port}")
    log.start(log_level)
    asyncio.run(run(plans))


def _seconds(text: str) -> float | None:
    """`5m` is 300; below zero: for ever."""
    found = re.fullmatch(r"(-?\d+(?:\.\d+)?)([smh]?)", text.strip())
    if found is None:
        raise OptionError(f"--keep-alive is {text!r}; take seconds, 5m, 2h, or -1 for ever")
    seconds = float(found[1]) * _SECONDS[found[2]]
    return None if seconds < 0 else seconds
