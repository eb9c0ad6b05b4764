"""`nightingale serve`: speech for programs, over HTTP, WebSocket and Wyoming."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import typer

from nightingale import backends
from nightingale.cli.configuration import read_config
from nightingale.cli.terminal import stderr
from nightingale.core import AUTO, DEVICES, PLANS, check_device
from nightingale.errors import AddressError, MissingPackageError, OptionError
from nightingale.settings import Settings

if TYPE_CHECKING:
    from socket import socket

    from rich.console import Console

    from nightingale.server.keys import Keys
    from nightingale.server.run import ServerConfig

_OPEN = "Anybody who can reach {host} can use this server and clone voices (--no-auth)."
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600}
_DECODERS = ("standard", "meanflow")
_LOG_LEVELS = ("debug", "info", "warning", "error")
_LOG_FORMATS = ("auto", "json", "text")
_ORIGIN = re.compile(r"[a-z][a-z0-9+.-]*://[^/\s?#@]+|\*|null")
_HOST_NAME = re.compile(r"\*|(\*\.)?[a-z0-9_-]+(\.[a-z0-9_-]+)*|[0-9a-f]*:[0-9a-f:]*:[0-9a-f:.]*")
_Name = TypeVar("_Name", str, str | None)


def _one_of(*allowed: str) -> Callable[[_Name], _Name]:
    """A check for an option with a few values."""

    def check(given: _Name) -> _Name:
        if given is not None and given not in allowed:
            raise typer.BadParameter(f"{given!r} is not one of {', '.join(allowed)}")
        return given

    return check


def _backend(given: str) -> str:
    return _one_of(backends.AUTO, *backends.names())(given)


def _device(given: str) -> str:
    try:
        check_device(given)
    except OptionError as error:
        raise typer.BadParameter(str(error)) from error
    return given


def _check_origins(given: list[str]) -> list[str]:
    origins = [origin.rstrip("/").lower() for origin in given]
    for origin in origins:
        if not _ORIGIN.fullmatch(origin):
            raise typer.BadParameter(
                f"{origin!r} is not an origin; give scheme and host, as https://a.b or "
                "http://a.b:8080, or * for all"
            )
    return origins


def _check_hosts(given: list[str]) -> list[str]:
    names = [name.lower() for name in given]
    for name in names:
        if not _HOST_NAME.fullmatch(name):
            raise typer.BadParameter(
                f"{name!r} is not a host name; give it without scheme, port and path, as "
                "tts.example.org, *.example.org or *"
            )
    return names


def serve(  # noqa: PLR0913, PLR0917
    context: typer.Context,
    config: Path | None = typer.Option(  # noqa: ARG001
        None, is_eager=True, callback=read_config, help="TOML file with values for these options."
    ),
    host: str = typer.Option(
        "127.0.0.1", help="Address to listen on; 0.0.0.0 for all network interfaces."
    ),
    port: int = typer.Option(
        8004, min=0, max=65535, help="Port to listen on; 0 for any free port."
    ),
    model: str | None = typer.Option(
        None, help="Name of a downloaded model, or a folder with its files (default: the best)."
    ),
    plan: str = typer.Option(
        AUTO, callback=_one_of(*PLANS), help=f"Speed/precision plan: {', '.join(PLANS)}."
    ),
    decoder: str | None = typer.Option(
        None, callback=_one_of(*_DECODERS), help="standard (10 steps) or meanflow (2 steps)."
    ),
    backend: str = typer.Option("auto", callback=_backend, help="Backend to compute with."),
    device: str = typer.Option("auto", callback=_device, help=f"Device to run on: {DEVICES}"),
    threads: int | None = typer.Option(
        None, min=1, max=1024, help="Number of CPU threads (default: all cores)."
    ),
    watermark: bool = typer.Option(True, help="Add an inaudible watermark to the audio."),
    max_requests: int = typer.Option(8, min=1, max=1024, help="Concurrent requests."),
    max_waiting: int = typer.Option(
        16, min=0, help="Queue length; further requests get 503 with Retry-After."
    ),
    max_open: int | None = typer.Option(
        None,
        min=1,
        max=10_000,
        help="Open utterances, also those that wait for text or for a slow reader; they cost "
        "memory only (default: 4 times --max-requests).",
    ),
    max_factor: float = typer.Option(
        0.9,
        min=0,
        help="Admit new streams while the predicted real-time factor stays below this, so that "
        "streams have no gaps; 0 for no limit.",
    ),
    max_characters: int = typer.Option(20_000, min=1, help="Maximum characters per request."),
    keep_alive: str = typer.Option(
        "-1", help="Unload the model after this idle time (300, 5m, 2h); -1 keeps it loaded."
    ),
    wyoming_host: str | None = typer.Option(
        None, help="Address for the Wyoming protocol (Home Assistant); default: as --host."
    ),
    wyoming_port: int = typer.Option(
        10200, min=0, max=65535, help="Port for the Wyoming protocol; 0 turns it off."
    ),
    keys: Path | None = typer.Option(None, help="TOML file with API keys; see docs/server.md."),
    no_auth: bool = typer.Option(
        False,
        "--no-auth",
        help="Listen on an address of a network without an API key: whoever reaches it may use it.",
    ),
    origin: list[str] = typer.Option(
        [], callback=_check_origins, help="Allowed browser origin (CORS): https://a.b; repeatable."
    ),
    allowed_host: list[str] = typer.Option(
        [],
        callback=_check_hosts,
        help="Allowed name in the Host header: tts.example.org, *.example.org or *; repeatable. "
        "Needed behind a reverse proxy when listening on loopback.",
    ),
    max_connections: int = typer.Option(
        512, min=1, max=100_000, help="Open connections of all clients."
    ),
    max_connections_per_address: int | None = typer.Option(
        None,
        min=1,
        help="Open connections of one client address (default: 64; no limit for loopback). Behind "
        "a reverse proxy on another machine, as many as the proxy opens.",
    ),
    drain: int = typer.Option(
        30, min=0, help="Seconds that open streams may take to finish after SIGTERM."
    ),
    stall: float = typer.Option(
        60.0, min=0.1, help="Seconds before a client that reads nothing is dropped."
    ),
    max_prebuffer: float = typer.Option(
        10.0, min=0, help="Maximum seconds of prebuffering when slower than real time."
    ),
    log_level: str = typer.Option(
        "info", callback=_one_of(*_LOG_LEVELS), help=f"{', '.join(_LOG_LEVELS)}."
    ),
    log_format: str = typer.Option(
        "auto", callback=_one_of(*_LOG_FORMATS), help="json, text, or auto: text on a terminal."
    ),
) -> None:
    """Start a server: HTTP (OpenAI-compatible), WebSocket and Wyoming.

    Each option can also be set in the environment (NIGHTINGALE_SERVE_PORT=8004)
    or in the --config file (port = 8004). A flag overrides the environment, and
    the environment the file.
    """
    from nightingale.server import listeners
    from nightingale.server.keys import Keys

    settings: Settings = context.obj
    keep_alive_s = _seconds(keep_alive)
    known_keys = Keys.read(keys, settings.api_key)
    wyoming_host = wyoming_host or host
    _check_auth(known_keys, no_auth, host, wyoming_host if wyoming_port else host)
    # Before anything that takes long: a port in use is known at once.
    http = listeners.listen(host, port)
    context.call_on_close(lambda: listeners.close(http))
    wyoming, wyoming_off = _listen_for_wyoming(context, wyoming_host, wyoming_port, known_keys)
    _check_packages()
    from nightingale.server import log
    from nightingale.server.connections import ConnectionLimits
    from nightingale.server.context import HttpConfig
    from nightingale.server.dispatch import Limits
    from nightingale.server.run import ServerConfig, run
    from nightingale.server.supervisor import WorkerConfig

    console, port = stderr(), listeners.port_of(http)
    limits = Limits(max_requests, max_waiting, keep_alive_s, max_open, len(known_keys), max_factor)
    worker = WorkerConfig(
        settings.home, model, backend, device, decoder, plan, watermark, threads, limits.n_at_worker
    )
    server = ServerConfig(
        http_config=HttpConfig(
            host,
            port,
            max_characters,
            origins=tuple(origin),
            allowed_hosts=tuple(allowed_host),
            stall_s=stall,
            max_prebuffer_s=max_prebuffer,
            connections=ConnectionLimits(max_connections, max_connections_per_address),
        ),
        worker_config=worker,
        limits=limits,
        keys=known_keys,
        drain_s=drain,
        http=http,
        wyoming=wyoming,
        wyoming_off=wyoming_off,
        announce=lambda: _announce(console, listeners.url(host, port)),
    )
    _greet(console, server)
    log.start(log_level, log_format)
    asyncio.run(run(server))


def _check_auth(keys: Keys, no_auth: bool, *hosts: str) -> None:
    """An address that others can reach needs a key, or the word that none is wanted."""
    from nightingale.server.listeners import is_loopback

    if keys and no_auth:
        raise OptionError("--no-auth was given, but also an API key; give one of them")
    exposed = [host for host in hosts if not is_loopback(host)]
    if exposed and not keys and not no_auth:
        raise OptionError(
            f"whoever reaches {exposed[0]} could use this server and clone voices: set "
            "NIGHTINGALE_API_KEY, give --keys, or give --no-auth if that is what you want"
        )


def _check_packages() -> None:
    try:
        import nightingale.server.run  # noqa: F401
    except ModuleNotFoundError as error:
        raise MissingPackageError(
            f"a server needs more packages ({error.name} is missing); get them with "
            "pip install 'nightingale-tts[server]'"
        ) from error


def _greet(console: Console, config: ServerConfig) -> None:
    if not config.http_config.is_local and not config.keys:
        console.print(_OPEN.format(host=config.http_config.host), style="yellow")
    if console.is_terminal:
        console.print("Loading the model ...")


def _announce(console: Console, url: str) -> None:
    """For a person on the terminal, for others in the log."""
    if console.is_terminal:
        console.print(f"Ready: {url} (web page and API). Press Ctrl-C to stop.", style="green")
    else:
        logging.getLogger("nightingale").info("ready", extra={"url": url})


def _listen_for_wyoming(
    context: typer.Context, host: str, port: int, keys: Keys
) -> tuple[list[socket], str]:
    """Its sockets, or why there are none.

    A port that was asked for must be free; the default one may be another server's.
    """
    from nightingale.server import listeners

    if not port:
        return [], "--wyoming-port is 0"
    if keys:
        return [], "API keys are configured, and the Wyoming protocol has no authentication"
    source = context.get_parameter_source("wyoming_port")
    try:
        sockets = listeners.listen(host, port, "--wyoming-port")
    except AddressError as error:
        if source is None or source.name != "DEFAULT":
            raise
        return [], str(error)
    context.call_on_close(lambda: listeners.close(sockets))
    return sockets, ""


def _seconds(text: str) -> float | None:
    """`5m` is 300; below zero: for ever."""
    found = re.fullmatch(r"(-?\d+(?:\.\d+)?)([smh]?)", text.strip())
    if found is None:
        raise OptionError(f"--keep-alive is {text!r}; give seconds, 5m, 2h, or -1 for no limit")
    seconds = float(found[1]) * _SECONDS[found[2]]
    return None if seconds < 0 else seconds
