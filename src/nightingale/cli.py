"""The `nightingale` command. Heavy imports live inside the commands, so that --help is quick.

The only file that reads the environment, and the only one that turns an error into an exit code.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperGroup

from nightingale import __version__
from nightingale.errors import NightingaleError
from nightingale.settings import Settings

if TYPE_CHECKING:
    from rich.console import Console


class _Commands(TyperGroup):
    """All commands: what Nightingale raises on purpose is said in one sentence."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except NightingaleError as error:
            _stderr().print(str(error), style="red")
            raise typer.Exit(1) from error


app = typer.Typer(
    name="nightingale",
    help="Streaming text to speech for the Chatterbox family.",
    cls=_Commands,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"nightingale {__version__}")
        raise typer.Exit


@app.callback()
def main(
    context: typer.Context,
    version: bool = typer.Option(  # noqa: ARG001
        False, "--version", callback=_show_version, is_eager=True, help="Say the version and stop."
    ),
) -> None:
    """Streaming text to speech for the Chatterbox family."""
    context.obj = Settings.read(os.environ)


@app.command()
def pull(
    context: typer.Context,
    name: str | None = typer.Argument(None, help="Which model; without it, they are listed."),
    is_list: bool = typer.Option(False, "--list", help="List the models and stop."),
) -> None:
    """Download a model. What was cut off is continued, what is here is checked."""
    settings: Settings = context.obj
    if name is None or is_list:
        _list_models(settings)
        return
    from nightingale.weights import catalog, fetch

    model = catalog.find(name)
    console = _stderr()
    try:
        with _bars(console) as report:
            fetch.pull(model, settings.home, report)
    except KeyboardInterrupt:
        console.print(f"Stopped. `nightingale pull {model.name}` continues where this ended.")
        raise typer.Exit(130) from None
    if console.is_terminal:
        console.print(f"{model.name} is here, {model.n_files} files, all of them whole.")


def _list_models(settings: Settings) -> None:
    from rich.console import Console
    from rich.table import Table

    from nightingale.errors import CorruptFileError, NotPulledError
    from nightingale.weights import catalog, record

    table = Table("name", "languages", "size", "here", "what", box=None, pad_edge=False)
    for model in catalog.MODELS:
        try:
            record.locate(model, settings.home)
            state = "yes"
        except NotPulledError:
            state = "no"
        except CorruptFileError:
            state = "damaged"
        n_languages = len(model.languages)
        spoken = ", ".join(model.languages) if n_languages < 4 else f"{n_languages} languages"
        size = f"{model.n_bytes / 1e9:.1f} GB"
        table.add_row(model.name, spoken, size, state, model.description)
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 120  # a row stays a line for the program that reads it
    console.print(table)


def _stderr() -> Console:
    from rich.console import Console

    return Console(stderr=True, highlight=False, markup=False, soft_wrap=True)


@contextmanager
def _bars(console: Console) -> Iterator[Callable[[str, int, int], None]]:
    """A bar per file on a terminal; in a pipe, silence."""
    from rich import progress

    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.DownloadColumn(),
        progress.TransferSpeedColumn(),
        progress.TimeRemainingColumn(),
    )
    with progress.Progress(*columns, console=console, disable=not console.is_terminal) as bars:
        tasks: dict[str, progress.TaskID] = {}

        def report(file: str, n_done: int, n_bytes: int) -> None:
            if file not in tasks:
                tasks[file] = bars.add_task(file, total=n_bytes, completed=n_done)
            bars.update(tasks[file], completed=n_done)

        yield report
