"""A benchmark for people: a table with limits and what has changed, and a picture of bars."""

from __future__ import annotations

import statistics
from importlib import import_module
from pathlib import Path
from typing import Any

from rich.table import Table
from rich.text import Text

from nightingale.errors import MissingPackageError
from nightingale.measure.bench import BUFFER_MS, STAGES, Result
from nightingale.measure.history import compare

_COLOURS = {"better": "green", "worse": "red", "noise": "dim"}


def table(result: Result, before: Any | None = None) -> Table:
    """A row for each figure: median, best and worst trial; and beside them the last result."""
    shown = Table(
        "figure", "median", "best to worst", "previous", "change", box=None, pad_edge=False
    )
    for name, values in result.figures().items():
        row: list[str | Text] = [
            name,
            f"{statistics.median(values):.4g}",
            f"{min(values):.4g} to {max(values):.4g}",
        ]
        if before and name in before["figures"]:
            change = compare(name, before["figures"][name], values)
            # Not as markup: a console that does not read it would print the tags.
            verdict = Text(change.verdict, style=_COLOURS[change.verdict])
            row += [f"{change.before:.4g}", verdict]
        shown.add_row(*row)
    shown.add_row(f"gaps at {BUFFER_MS} ms", str(sum(trial.n_gaps for trial in result.trials)))
    shown.add_row("peak memory MB", f"{result.peak_mb:.0f}")
    return shown


def draw(result: Result, file: Path) -> None:
    """Two bars for each stage: the time it takes, and the least that it could take."""
    try:
        figures = import_module("matplotlib.figure")
    except ImportError as error:
        raise MissingPackageError(
            "drawing needs matplotlib; install it with pip install 'nightingale-tts[plot]'"
        ) from error
    figure = figures.Figure(figsize=(8, 3), layout="constrained")
    axis = figure.subplots()
    seconds = result.trials[0].seconds
    spent = [statistics.median(result.figures()[f"{stage} ms"]) for stage in STAGES]
    least = [result.limits_ms[stage] for stage in STAGES]
    places = range(len(STAGES))
    axis.barh([place - 0.2 for place in places], spent, 0.4, label="takes")
    axis.barh([place + 0.2 for place in places], least, 0.4, label="limit of the machine")
    axis.set(yticks=list(places), yticklabels=STAGES, xlabel=f"ms for {seconds:.1f} s of speech")
    axis.axvline(1e3 * seconds, color="grey", linestyle=":", label="real time")
    axis.invert_yaxis()
    axis.legend()
    figure.savefig(file, dpi=100)
