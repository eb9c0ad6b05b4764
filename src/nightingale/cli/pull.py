"""`nightingale pull`: download models, or list them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from nightingale.cli.progress import Sparse
from nightingale.cli.terminal import Interrupted, stderr
from nightingale.settings import Settings

if TYPE_CHECKING:
    from rich.console import Console


def pull(
    context: typer.Context,
    name: str | None = typer.Argument(None, help="Model name. Default: list the models."),
    is_list: bool = typer.Option(False, "--list", help="List the models and exit."),
) -> None:
    """Download a model. Resumes interrupted downloads and verifies checksums."""
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
    except KeyboardInterrupt as interrupt:
        message = f"Interrupted; `nightingale pull {model.name}` continues where this stopped."
        raise Interrupted.of(interrupt, message) from None
    if console.is_terminal:
        console.print(f"{model.name}: {model.n_files} files downloaded and verified.")


def _list_models(settings: Settings) -> None:
    from rich.console import Console
    from rich.table import Table

    from nightingale.errors import CorruptFileError, NotPulledError
    from nightingale.weights import catalog, manifest

    table = Table("name", "languages", "size", "here", "what", box=None, pad_edge=False)
    for model in catalog.MODELS:
        try:
            manifest.locate(model, settings.home)
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
    """A bar per file on a terminal; in a pipe, a line every ten seconds."""
    if not console.is_terminal:
        lines = Sparse(console)
        yield lambda file, n_done, n_bytes: lines.report(
            lambda _s: f"{file}: {n_done / 1e6:,.0f} of {n_bytes / 1e6:,.0f} MB"
        )
        return
    from rich import progress

    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.DownloadColumn(),
        progress.TransferSpeedColumn(),
        progress.TimeRemainingColumn(),
    )
    with progress.Progress(*columns, console=console) as bars:
        tasks: dict[str, progress.TaskID] = {}

        def report(file: str, n_done: int, n_bytes: int) -> None:
            if file not in tasks:
                tasks[file] = bars.add_task(file, total=n_bytes, completed=n_done)
            bars.update(tasks[file], completed=n_done)

        yield report
