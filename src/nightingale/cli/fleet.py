"""`nightingale fleet`: replicas of the server under Ray Serve."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import Any

import typer

from nightingale.cli.terminal import stderr

fleet = typer.Typer(help="Run replicas of the server under Ray Serve.", no_args_is_help=True)


@fleet.callback()
def main() -> None:
    """Run replicas of the server under Ray Serve."""


@fleet.command()
def up(
    config: Path = typer.Option(..., help="YAML file of the fleet; see docs/scale.md."),
    replicas: int | None = typer.Option(
        None, min=1, help="A fixed number of replicas, instead of autoscaling."
    ),
) -> None:
    """Start a fleet on this machine, or deploy it to the Ray cluster of RAY_ADDRESS.

    Ends it at Ctrl-C; open streams may finish. With RAY_ADDRESS it stays.
    """
    from nightingale.fleet import config as files
    from nightingale.fleet.ingress import INGRESS

    given = files.read(config)
    args = with_replicas(files.args_of(given), replicas)
    os.environ.update(INGRESS)  # Ray reads it when it is imported
    from nightingale.fleet import app

    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    app.up(given, args)
    port = (given.get("http_options") or {}).get("port", 8000)
    stderr().print(f"Ready: http://localhost:{port} (API). Press Ctrl-C to stop.", style="green")
    stop.wait()
    app.down()


def with_replicas(args: dict[str, Any], replicas: int | None) -> dict[str, Any]:
    fixed = {} if replicas is None else {"min_replicas": replicas, "max_replicas": replicas}
    return {**args, **fixed}
