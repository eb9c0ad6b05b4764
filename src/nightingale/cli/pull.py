"""`nightingale pull`: models onto this machine, and a list of what there is."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from nightingale.cli.terminal import stderr
from nightingale.settings import Settings

if TYPE_CHECKING:
    from rich.console import Console


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
    console = stderr()
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
            if model.is_bundled:
                continue  # a package without it: nothing that a pull could mend
            state = "no"
        except CorruptFileError:
            state = "damaged"
        n_languages = len(model.languages)
        spoken = ", ".join(model.languages) if n_languages < 4 else f"{n_languages} languages"
        size = "-" if model.is_bundled else f"{model.n_bytes / 1e9:.1f} GB"
        table.add_row(model.name, spoken, size, state, model.description)
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 120  # a row stays a line for the program that reads it
    console.print(table)


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
