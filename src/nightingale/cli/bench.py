"""`nightingale bench`: how fast it is on this machine, and how fast it could be."""

from __future__ import annotations

import json
from pathlib import Path

import typer

from nightingale import backends
from nightingale.cli.progress import counting, working
from nightingale.cli.terminal import print_table, stderr
from nightingale.core import DEVICES, PLANS, Plan
from nightingale.errors import OptionError
from nightingale.settings import Settings


def bench(  # noqa: PLR0913, PLR0917
    context: typer.Context,
    model: str | None = typer.Option(None, help="Model name, or a folder with its files."),
    random_weights: str | None = typer.Option(
        None, help="Measure this model with random weights: needs no download."
    ),
    decoder: str | None = typer.Option(None, help="standard (10 steps) or meanflow (2 steps)."),
    plan: str = typer.Option("reference", help=f"Speed/precision plan: {', '.join(PLANS)}."),
    backend: str = typer.Option("auto", help="Backend to compute with."),
    device: str = typer.Option("auto", help=f"Device to compute on: {DEVICES}"),
    seconds: float = typer.Option(
        5.0, min=0.2, max=40.0, help="Maximum seconds of speech per trial."
    ),
    trials: int = typer.Option(5, min=1, max=1000, help="Number of trials."),
    threads: int | None = typer.Option(None, min=1, help="CPU threads. Default: torch's choice."),
    results: Path | None = typer.Option(
        None, help="Folder for results. Default: in the home folder."
    ),
    plot: Path | None = typer.Option(
        None, help="Draw a bar chart of the stages and their limits into this file."
    ),
    only_json: bool = typer.Option(False, "--json", help="Print the line of JSON alone."),
    against: str | None = typer.Option(
        None, help="upstream: also time the chatterbox-tts package (full-size Multilingual)."
    ),
    upstream_python: Path | None = typer.Option(
        None, help="Python with chatterbox-tts installed. Default: that of .venv-upstream."
    ),
) -> None:
    """Measure the speed of each stage and the machine's limit for it; prints a line of JSON."""
    settings: Settings = context.obj
    console = stderr()
    console.quiet = only_json
    if against not in (None, "upstream"):
        raise OptionError("there is only one to compare with: --against upstream")
    Plan.named(plan)
    backends.check_name(backend)

    from nightingale.loader import LoadOptions, load_components
    from nightingale.measure import bench as measure
    from nightingale.measure import history
    from nightingale.measure.bench_report import draw, table
    from nightingale.measure.random_model import random_components
    from nightingale.measure.upstream import against_upstream
    from nightingale.pipeline import Nightingale

    with working(console, "loading the model"):
        wanted = LoadOptions(
            device, decoder, plan=Plan.named(plan), backend=backend, threads=threads
        )
        if random_weights:
            components = random_components(random_weights, wanted)
        else:
            components = load_components(model, settings.home, wanted)
        tts = Nightingale(components, settings.home)
    subject = {
        "model": tts.components.model.name,
        "weights": "random" if random_weights else "real",
        "decoder": tts.components.decoder,
        "plan": plan,
        "backend": tts.components.backend,
        "device": tts.components.loaded.device,
        "resolved": str(tts.components.plan),
        "seconds": str(seconds),
    }
    console.print(str(tts.components.resolved), soft_wrap=True)
    with counting(console, "warming up", trials) as count:
        result = measure.bench(
            tts,
            n_trials=trials,
            seconds=seconds,
            progress=lambda n_done: count(n_done, "trials"),
        )
    file = (results or settings.home / "bench") / "results.jsonl"
    before = history.last(file, subject, measure.machine())
    facts = result.facts()
    history.keep(file, subject, facts)
    print_table(console, table(result, before))
    if plot:
        draw(result, plot)
    shown = {name: value for name, value in facts.items() if name != "figures"}
    shown["machine"] = {**measure.machine(), **tts.components.loaded.versions}
    if against:
        del tts  # theirs needs the memory
        with working(console, "measuring upstream"):
            shown["against_upstream"] = against_upstream(upstream_python, plan, trials)
    typer.echo(json.dumps({"subject": subject, **shown}))
