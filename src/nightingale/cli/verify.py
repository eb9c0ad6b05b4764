"""`nightingale verify`: what the fast plans change, on the weights that are here."""

from __future__ import annotations

import json
from pathlib import Path

import typer

from nightingale.cli.terminal import stderr
from nightingale.core import PLANS, Plan
from nightingale.settings import Settings


def verify(
    context: typer.Context,
    model: str | None = typer.Option(None, help="A pulled model, or a folder of its files."),
    plans: list[str] = typer.Option(["balanced", "fast"], "--plan", help="May be repeated."),
    decoder: str | None = typer.Option(None, help="standard (10 steps) or meanflow (2 steps)."),
    sentences: int = typer.Option(20, min=1, max=200),
    judges: Path | None = typer.Option(
        None, help="Folder of judges' weights: then words and voices are judged as well."
    ),
    seeds: int = typer.Option(0, min=0, max=20, help="With judges: how much luck alone changes."),
) -> None:
    """Compare plans with the reference: tokens, mel, spectra, words, voice, speed and memory."""
    settings: Settings = context.obj
    console = stderr()
    for plan in plans:
        Plan.named(plan)  # a wrong name is told before minutes of work

    from nightingale.measure import texts
    from nightingale.measure.listener import Listener
    from nightingale.measure.quality import Judge
    from nightingale.measure.report import plans as table
    from nightingale.measure.speakers import SpeakerJudge
    from nightingale.measure.verify import Verifier
    from nightingale.pipeline import Nightingale

    def load(plan: str) -> Nightingale:
        return Nightingale.load(
            model, home=settings.home, decoder=decoder, watermark=False, plan=plan
        )

    def progress(plan: str, n_done: int) -> None:
        is_done = n_done == sentences
        if console.is_terminal or is_done:
            console.print(f"{plan}: {n_done} of {sentences}", end="\n" if is_done else "\r")

    judge = Judge(Listener(judges), SpeakerJudge(judges)) if judges else None
    reference = load(next(iter(PLANS)))
    verifier = Verifier(
        reference, texts.read("held_out", sentences), judge=judge, progress=progress
    )
    verdicts = [verifier.verify(reference)]
    verdicts += [verifier.verify(load(plan)) for plan in plans]
    console.print(table(verdicts))
    lucky = verifier.spread(seeds) if judge and seeds else []
    words = [report.words.value for report in lucky]
    own = [report.own_voice.value for report in lucky if report.own_voice]
    if words and own:
        console.print(
            f"reference with {seeds} other seeds: word error rate {min(words):.4f} to "
            f"{max(words):.4f}, like its own voice {min(own):.4f} to {max(own):.4f}"
        )
    facts = {verdict.plan: verdict.facts() for verdict in verdicts}
    typer.echo(json.dumps({"n": sentences, "plans": facts, "seeds": {"words": words, "own": own}}))
