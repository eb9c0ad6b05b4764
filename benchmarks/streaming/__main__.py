"""The proofs, one command each; each ends with a line of JSON, kept in benchmarks/results."""

from __future__ import annotations

import datetime
import json
import statistics
import subprocess
import time
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer

from benchmarks.streaming import cancels as cancelling
from benchmarks.streaming import flat as long_texts
from benchmarks.streaming import identity as sameness
from benchmarks.streaming import pauses as joints
from benchmarks.streaming import seams as meeting
from benchmarks.streaming.nasty import Sound, judge, summary
from benchmarks.streaming.nasty import nasty as nasty_texts
from nightingale.core import SAMPLES_PER_SECOND, Plan
from nightingale.loader import LoadOptions
from nightingale.measure import texts
from nightingale.measure.bench import machine, speak
from nightingale.measure.random_model import random_components
from nightingale.measure.transcriber import Transcriber
from nightingale.pipeline import Nightingale
from nightingale.text.split import SINGLE, split

RESULTS = Path(__file__).parents[1] / "results"

app = typer.Typer(add_completion=False, help=__doc__)
Model = Annotated[str, typer.Option(help="Name or folder.")]
Random = Annotated[bool, typer.Option(help="As large as the named model, with random weights.")]
Decoder = Annotated[str | None, typer.Option()]


def load(
    model: str, *, random_weights: bool = False, decoder: str | None = None, name: str = "live"
) -> Nightingale:
    plan = Plan.named(name)
    if random_weights:
        return Nightingale(random_components(model, LoadOptions(decoder=decoder, plan=plan)))
    folder = Path(model)
    return Nightingale.load(folder if folder.is_dir() else model, plan=plan, decoder=decoder)


def keep(proof: str, **facts: Any) -> None:
    commit = subprocess.run(
        ("git", "describe", "--always", "--dirty"), capture_output=True, text=True, check=False
    ).stdout.strip()
    today = datetime.datetime.now(tz=datetime.UTC).date().isoformat()
    line = json.dumps({"proof": proof, **facts, "commit": commit, "machine": machine()})
    with (RESULTS / f"streaming-{today}.jsonl").open("a") as file:
        file.write(line + "\n")
    print(line)


@app.command()
def identity(
    model: Model = "fledgling",
    n: int = 1000,
    random_weights: Random = False,
    decoder: Decoder = None,
) -> None:
    """One sound for each request, whoever listens how."""
    tts = load(model, random_weights=random_weights, decoder=decoder)
    said = texts.read("short", 3) + texts.read("held_out", 2)
    found = sameness.identity(tts, said, n, max_tokens=60 if random_weights else 400)
    n_sounds = [len(sounds) for sounds in found.values()]
    keep("identity", model=model, n_runs=n, n_texts=len(said), n_sounds_of_each_text=n_sounds)
    raise typer.Exit(max(n_sounds) > 1)


@app.command()
def seams(model: Model = "fledgling", n: int = 100_000, n_planted: int = 1000) -> None:
    """Places where windows meet are like others; planted faults are not."""
    speaker, is_bad = meeting.Speaker(load(model), texts.read("held_out", 200)), False
    for fault in meeting.FAULTS:
        answers = meeting.examine(speaker, fault, n if fault == "none" else n_planted)
        p_values = answers.p_values()
        medians = {
            m: [statistics.median(side[m]) for side in (answers.seams, answers.others)]
            for m in meeting.MEASURES
        }
        is_alike = min(p_values.values()) > 0.01
        is_bad |= is_alike != (fault == "none")
        facts = {"n_seams": answers.n_seams, "p": p_values, "medians_seam_and_other": medians}
        keep("seams", model=model, fault=fault, **facts)
    raise typer.Exit(is_bad)


@app.command()
def flat(
    model: Model = "nano",
    random_weights: Random = True,
    decoder: Decoder = None,
    rounds: int = 5,
    tokens: Annotated[int, typer.Option(help="In the windows to compare.")] = 25,
) -> None:
    """Window 50 of a long text costs what window 5 does."""
    tts = load(model, random_weights=random_weights, decoder=decoder)
    ratios = long_texts.late_by_early(tts, tokens, rounds)
    ratio = statistics.median(ratios)
    keep("flat", model=model, window_50_to_5=ratio, n_pairs=len(ratios), each=ratios)
    raise typer.Exit(not 0.9 < ratio < 1.1)


@app.command()
def memory(model: Model = "fledgling", minutes: float = 60) -> None:
    """What a process holds while it speaks for so long."""
    held = long_texts.memory(load(model), minutes)
    keep("memory", model=model, minutes=minutes, mb_per_hour=held.mb_per_hour, mb=held.mb[::30])
    raise typer.Exit(held.mb_per_hour > 50)


@app.command()
def cancels(model: Model = "fledgling", n: int = 1000) -> None:
    """Interrupted at random moments."""
    found = cancelling.cancels(load(model), n)
    slowest, usual = max(found.stopped_ms), statistics.median(found.stopped_ms)
    facts = {"n_after": found.n_after, "n_late": found.n_late, "n_finished": found.n_finished}
    keep("cancels", model=model, n=n, median_ms=usual, slowest_ms=slowest, **facts)
    raise typer.Exit(bool(found.n_after or found.n_late))


@app.command()
def nasty(
    judges: Path,
    model: Model = "fledgling",
    n: int = 500,
    guard: bool = True,
    teacher: Annotated[bool, typer.Option(help="Let the model's own teacher speak.")] = False,
) -> None:
    """How many texts come out as something else."""
    transcriber = Transcriber(judges, torch.get_num_threads())
    n_incomplete = 0
    if teacher:
        from training.speak import Heart  # noqa: PLC0415 - only where there is one

        heart = Heart(judges)
    else:
        tts = load(model)

    def speak(seed: int, text: str) -> Sound:
        nonlocal n_incomplete
        if teacher:
            parts = [heart.speak(heart.phonemes(part.text)) for part in split(text, SINGLE)]
            return np.concatenate(parts)
        audio = tts.say(text, seed=seed, guard=guard)
        n_incomplete += not audio.is_complete
        return audio.samples

    verdicts = []
    for verdict in judge(
        nasty_texts(n), speak, lambda s: transcriber.transcribe(s, SAMPLES_PER_SECOND)
    ):
        verdicts.append(verdict)
        if verdict.is_catastrophe:
            facts = f"{verdict.edits.rate:.0%}  {verdict.nasty.kind}  {verdict.nasty.text[:80]!r}"
            print(f"{facts}  heard as  {verdict.heard[:80]!r}", flush=True)
    who = "its teacher" if teacher else model
    keep("nasty", model=who, guard=guard, n_reported_incomplete=n_incomplete, **summary(verdicts))


@app.command()
def pauses(
    model: Model = "fledgling",
    decoder: Decoder = "meanflow",
    n: Annotated[int, typer.Option(help="Single clips.")] = 200,
    words: Annotated[int, typer.Option(help="Of the text with chapters.")] = 3000,
    plan: Annotated[str, typer.Option()] = "live",
) -> None:
    """First and last samples of clips, seams, clicks, and silences by what the text has there."""
    tts = load(model, decoder=decoder, name=plan)
    clips = joints.examine(tts, texts.read("held_out", n)) if n else joints.Joints()
    whole = joints.examine(tts, [joints.book(words)])
    ok = clips.is_clean and whole.is_clean
    keep("pauses", plan=plan, clips=clips.summary(), book=whole.summary(), ok=ok)
    raise typer.Exit(not ok)


@app.command(name="first-sound")
def first_sound(
    model: Model,
    random_weights: Random = False,
    decoder: Decoder = None,
    plan: str = "live",
    n: int = 50,
) -> None:
    """From the request to the first sample that can be heard, warm."""
    tts = load(model, random_weights=random_weights, decoder=decoder, name=plan)
    speak(tts, "The first one is not counted.", None, 50)
    trials = []
    for text in texts.read("held_out", n):
        trials.append(speak(tts, text, None, 125))
        time.sleep(0.1)
    first = [trial.first_ms for trial in trials]
    audible = [trial.audible_ms for trial in trials]
    keep(
        "first sound",
        model=model,
        decoder=decoder,
        n=n,
        plan=str(tts.components.plan),
        first_ms={p: float(np.percentile(first, p)) for p in (50, 95)},
        audible_ms={p: float(np.percentile(audible, p)) for p in (50, 95)},
        gaps_at_200_ms=sum(trial.n_gaps for trial in trials),
        rtf=statistics.median(trial.wall_ms / 1e3 / trial.seconds for trial in trials),
    )


if __name__ == "__main__":
    app()
