"""Reports as tables for people: systems side by side, and the clips that went worst."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.table import Table

from nightingale.measure.interval import Interval
from nightingale.measure.quality import FIGURES, JudgeName, Report
from nightingale.measure.verify import Verdict


def compare(reports: Mapping[str, Report]) -> Table:
    """A column per system, a row per figure, each with its 95 % interval."""
    table = Table("figure", *reports, box=None, pad_edge=False)
    table.add_row("clips", *(str(len(report.rows)) for report in reports.values()))
    for name, (title, form) in FIGURES.items():
        figures = [getattr(report, name) for report in reports.values()]
        if any(figure is not None for figure in figures):
            table.add_row(title, *(_written(figure, form) for figure in figures))
    return table


def plans(verdicts: Sequence[Verdict]) -> Table:
    """A column per plan, a row per figure."""
    table = Table("figure", *(verdict.plan for verdict in verdicts), box=None, pad_edge=False)
    facts = [verdict.facts() for verdict in verdicts]
    for name in facts[0]:
        values = [row[name] for row in facts]
        table.add_row(name, *("-" if value is None else f"{value:.4g}" for value in values))
    return table


def worst(report: Report, n_rows: int, judge: JudgeName = "words") -> Table:
    """The clips that a judge likes least: what should have been said, and what was heard."""
    table = Table("voice", "text", "heard", "words", "own / other", "sound", box=None)
    for row in report.worst(n_rows, judge):
        similarity = f"{row.match.own:.2f} / {row.match.other or 0:.2f}" if row.match else "-"
        sound = "-" if row.sound is None else f"{row.sound:.2f}"
        table.add_row(row.voice, row.text, row.heard, f"{row.words.rate:.0%}", similarity, sound)
    return table


def _written(figure: Interval | None, form: str) -> str:
    if figure is None:
        return "-"
    value, low, high = (form.format(bound) for bound in (figure.value, figure.low, figure.high))
    return f"{value} ({low} to {high})"
