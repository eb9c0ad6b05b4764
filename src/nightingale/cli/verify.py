"""`nightingale verify`: what the fast plans change, measured on a model of this machine."""

from __future__ import annotations

import json
from pathlib import Path

import typer

from nightingale.cli.progress import counting, working
from nightingale.cli.terminal import print_table, stderr
from nightingale.core import DEVICES, PLANS, Plan
from nightingale.settings import Settings


def verify(  # noqa: PLR0913, PLR0917
    context: typer.Context,
    model: str | None = typer.Option(None, help="Model name, or a folder with its files."),
    plans: list[str] = typer.Option(
        ["balanced", "fast"], "--plan", help="Plan to compare with the reference; may be repeated."
    ),
    decoder: str | None = typer.Option(None, help="standard (10 steps) or meanflow (2 steps)."),
    device: str = typer.Option("auto", help=f"Device to compute on: {DEVICES}"),
    sentences: int = typer.Option(20, min=1, max=200, help="Number of sentences to speak."),
    judges: Path | None = typer.Option(
        None, help="Folder with the judges' weights: adds word error rate and speaker similarity."
    ),
    seeds: int = typer.Option(
        0, min=0, max=20, help="With judges: sets of other seeds, for seed variance."
    ),
) -> None:
    """Compare plans with the reference: tokens, mel, spectra, words, voice, speed and memory."""
    settings: Settings = context.obj
    console = stderr()
    for plan in plans:
        Plan.named(plan)  # a wrong name is an error before minutes of work
    if seeds and not judges:
        raise typer.BadParameter("seed variance is that of the judges: add --judges FOLDER")

    from nightingale.measure import texts
    from nightingale.measure.quality import Judge
    from nightingale.measure.report import plans as table
    from nightingale.measure.speakers import SpeakerJudge
    from nightingale.measure.transcriber import Transcriber
    from nightingale.measure.verify import Verifier
    from nightingale.pipeline import Nightingale

    def load(plan: str) -> Nightingale:
        return Nightingale.load(
            model, home=settings.home, device=device, decoder=decoder, watermark=False, plan=plan
        )

    judge = Judge(Transcriber(judges), SpeakerJudge(judges)) if judges else None
    with working(console, "loading the model"):
        reference = load(next(iter(PLANS)))
    with counting(console, "speaking", sentences) as count:
        verifier = Verifier(
            reference,
            texts.read("held_out", sentences),
            judge=judge,
            progress=lambda step, n_done: count(n_done, step),
        )
        verdicts = [verifier.verify(reference)]
        for plan in plans:
            count(0, f"loading {plan}")
            verdicts.append(verifier.verify(load(plan)))
        other_seeds = verifier.spread(seeds) if seeds else []
    print_table(console, table(verdicts))
    words = [report.words.value for report in other_seeds]
    own = [report.own_voice.value for report in other_seeds if report.own_voice]
    if words and own:
        console.print(
            f"reference with {seeds} other seeds: word error rate {min(words):.4f} to "
            f"{max(words):.4f}, speaker similarity {min(own):.4f} to {max(own):.4f}"
        )
    facts = {verdict.plan: verdict.facts() for verdict in verdicts}
    typer.echo(json.dumps({"n": sentences, "plans": facts, "seeds": {"words": words, "own": own}}))
