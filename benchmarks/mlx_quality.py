"""Speech of the backend mlx with fewer bits, by the judges: word error rate, speaker similarity.

    scripts/quality --fetch
    python -m benchmarks.mlx_quality --rows rows.jsonl --sentences 50 --seconds 600
    python -m benchmarks.mlx_quality --rows rows.jsonl --report

Each held-out sentence is said in all ways with the same seed, so that a run that was ended has
judged every way on nearly the same sentences; run it again to go on. Only sentences that all ways
have said are reported. Tokens are the backend's; sound is made of them by the torch backend, whose
samples differ from MLX's by less than can be heard (benchmarks/mlx_equality.py), in a tenth of the
time.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch

from nightingale import Nightingale
from nightingale.audio import files
from nightingale.core import SAMPLES_PER_SECOND, Plan
from nightingale.measure import texts
from nightingale.measure.quality import Clip, Judge, Report, Row
from nightingale.measure.speakers import Match, SpeakerJudge
from nightingale.measure.transcriber import Transcriber
from nightingale.measure.words import Edits
from training.work import work

WAYS = (("torch", "fp32"), ("mlx", "int8"), ("mlx", "int4"))
VOICE = "heart"
KNOWN = Path(__file__).parents[1] / f"tests/quality/voices/{VOICE}_known.ogg"
MAX_BASELINE = 0.3  # word error rate of the reference: beyond, the judge is broken
FIGURES = ("words", "characters", "own_voice", "pace")
Rows = dict[tuple[str, int], Row]  # by way and number of the sentence


def loaded(backend: str, t3: Any) -> Nightingale:
    """Tokens by this backend, sound by torch."""
    ways: tuple[tuple[str, Any], ...] = (("torch", "fp32"), (backend, t3))
    torch_model, other = (
        Nightingale.load(
            "fledgling", backend=name, decoder="meanflow", plan=Plan(t3=weights), watermark=False
        ).components
        for name, weights in ways
    )
    own = replace(torch_model.loaded, token_engine=other.loaded.token_engine)
    return Nightingale(replace(torch_model, loaded=own))


def read(file: Path) -> Rows:
    if not file.exists():
        return {}
    found = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return {(one["way"], one["number"]): _row(one["row"]) for one in found}


def _row(given: dict[str, Any]) -> Row:
    edits = {name: Edits(**given[name]) for name in ("words", "characters")}
    return Row(**{**given, **edits, "match": Match(**given["match"])})


def judge(given: argparse.Namespace) -> None:
    until, done = time.monotonic() + given.seconds, read(given.rows)
    torch.set_num_threads(1)
    models = {f"{backend} {t3}": loaded(backend, t3) for backend, t3 in WAYS}
    assets = work() / "assets"
    judges = Judge(Transcriber(assets, 1), SpeakerJudge(assets))
    known = Clip(files.read(KNOWN, SAMPLES_PER_SECOND), "", VOICE)
    voices = judges.enroll([known])
    with given.rows.open("a", encoding="utf-8") as file:
        for number, text in enumerate(texts.read("held_out", given.sentences)):
            for way, tts in models.items():
                if (way, number) in done:
                    continue
                clip = Clip(tts.say(text, seed=number).samples, text, VOICE)
                row = asdict(judges.score_one(clip, voices))
                file.write(json.dumps({"way": way, "number": number, "row": row}) + "\n")
                file.flush()
            if time.monotonic() > until:
                return


def report(rows: Rows) -> dict[str, Any]:
    ways = [f"{backend} {t3}" for backend, t3 in WAYS]
    numbers = sorted({at for _, at in rows if all((way, at) in rows for way in ways)})
    found: dict[str, Any] = {"n_sentences": len(numbers)}
    for way in ways:
        facts = Report(tuple(rows[way, number] for number in numbers)).facts()
        found[way] = {name: facts[name] for name in FIGURES}
    if numbers and found[ways[0]]["words"]["value"] > MAX_BASELINE:
        sys.exit(f"the judge does not understand the reference: {found}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rows", type=Path, required=True)
    parser.add_argument("--sentences", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--report", action="store_true")
    given = parser.parse_args()
    if not given.report:
        judge(given)
    print(json.dumps(report(read(given.rows))))


if __name__ == "__main__":
    main()
