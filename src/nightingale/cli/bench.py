"""`nightingale bench`: how fast it is here, and how fast it could be."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path

import typer

from nightingale.cli.terminal import stderr
from nightingale.core import Plan
from nightingale.errors import OptionError
from nightingale.settings import Settings


def bench(  # noqa: PLR0913, PLR0917
    context: typer.Context,
    model: str | None = typer.Option(None, help="A pulled model, or a folder of its files."),
    random_weights: str | None = typer.Option(
        None, help="As large as this model, with weights by chance: needs no download."
    ),
    decoder: str | None = typer.Option(None, help="standard (10 steps) or meanflow (2 steps)."),
    plan: str = typer.Option("reference", help="reference, balanced or fast: how exactly."),
    device: str = typer.Option("auto", help="Where to compute."),
    seconds: float = typer.Option(5.0, min=0.2, max=40.0, help="Of speech, at most."),
    trials: int = typer.Option(5, min=1, max=1000),
    threads: int | None = typer.Option(None, min=1, help="For the computation; else torch's own."),
    results: Path | None = typer.Option(None, help="Folder for results; else in our home."),
    plot: Path | None = typer.Option(None, help="Draw a bar for each stage and for its limit."),
    against: str | None = typer.Option(
        None, help="upstream: time its package as well, stage by stage (full-size Multilingual)."
    ),
    upstream_python: Path | None = typer.Option(
        None, help="Python that has chatterbox-tts installed, if not of .venv-upstream."
    ),
) -> None:
    """Measure each stage beside the limit of the machine; ends with a line of JSON."""
    settings: Settings = context.obj
    console = stderr()
    if against not in (None, "upstream"):
        raise OptionError("there is only one to compare with: --against upstream")

    import torch

    from nightingale.measure import bench as measure
    from nightingale.measure import history
    from nightingale.measure.against import against_upstream
    from nightingale.measure.bench_report import draw, table
    from nightingale.measure.random_model import random_parts
    from nightingale.pipeline import Nightingale

    if threads:
        torch.set_num_threads(threads)
    if random_weights:
        engine = Nightingale(random_parts(random_weights, decoder, device, Plan.named(plan)))
    else:
        engine = Nightingale.load(
            model, home=settings.home, device=device, decoder=decoder, plan=plan
        )
    subject = {
        "model": engine.parts.model.name,
        "weights": "random" if random_weights else "real",
        "decoder": engine.parts.decoder,
        "plan": plan,
        "device": str(engine.parts.placement.device),
        "seconds": str(seconds),
    }
    with console.status("measuring") if console.is_terminal else nullcontext():
        result = measure.bench(engine, n_trials=trials, seconds=seconds)
    file = (results or settings.home / "bench") / "results.jsonl"
    before = history.last(file, subject, measure.machine())
    facts = result.facts()
    history.keep(file, subject, facts)
    console.print(table(result, before))
    if plot:
        draw(result, plot)
    shown = {name: value for name, value in facts.items() if name != "figures"}
    if against:
        del engine  # theirs needs the memory
        with console.status("measuring upstream") if console.is_terminal else nullcontext():
            shown["against_upstream"] = against_upstream(upstream_python, plan, trials)
    typer.echo(json.dumps({"subject": subject, **shown}))
