"""Speech made in several ways, judged sentence by sentence: what benchmarks of quality share.

Each held-out sentence is said in all ways before the next one, so that a run that was ended has
judged every way on nearly the same sentences; run it again to go on. Only sentences that all ways
have said are reported.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from nightingale.audio import files
from nightingale.audio.clip import Audio
from nightingale.core import SAMPLES_PER_SECOND
from nightingale.measure import texts
from nightingale.measure.quality import Clip, Judge, Report, Row
from nightingale.measure.speakers import Match, SpeakerJudge
from nightingale.measure.transcriber import Transcriber
from nightingale.measure.words import Edits
from training.work import work

VOICE = "heart"
KNOWN = Path(__file__).parents[1] / f"tests/quality/voices/{VOICE}_known.ogg"
MAX_BASELINE = 0.3  # word error rate of the first way: beyond, the judge is broken
FIGURES = ("words", "characters", "own_voice", "pace")
Rows = dict[tuple[str, int], Row]  # by way and number of the sentence
Way = Callable[[str, int], Audio]  # says a text; the number of the sentence is its seed


def read(file: Path) -> Rows:
    if not file.exists():
        return {}
    found = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return {(one["way"], one["number"]): _row(one["row"]) for one in found}


def _row(given: dict[str, Any]) -> Row:
    edits = {name: Edits(**given[name]) for name in ("words", "characters")}
    return Row(**{**given, **edits, "match": Match(**given["match"])})


def judge(given: argparse.Namespace, load: Callable[[], Mapping[str, Way]]) -> None:
    until, done = time.monotonic() + given.seconds, read(given.rows)
    torch.set_num_threads(1)
    ways = load()
    assets = work() / "assets"
    judges = Judge(Transcriber(assets, 1), SpeakerJudge(assets))
    voices = judges.enroll([Clip(files.read(KNOWN, SAMPLES_PER_SECOND), "", VOICE)])
    with given.rows.open("a", encoding="utf-8") as file:
        for number, text in enumerate(texts.read("held_out", given.sentences)):
            for way in given.ways:
                if (way, number) in done:
                    continue
                clip = Clip(ways[way](text, number).samples, text, VOICE)
                row = asdict(judges.score_one(clip, voices))
                file.write(json.dumps({"way": way, "number": number, "row": row}) + "\n")
                file.flush()
            if time.monotonic() > until:
                return


def report(rows: Rows, ways: Sequence[str]) -> dict[str, Any]:
    numbers = sorted({at for _, at in rows if all((way, at) in rows for way in ways)})
    found: dict[str, Any] = {"n_sentences": len(numbers)}
    for way in ways:
        facts = Report(tuple(rows[way, number] for number in numbers)).facts()
        found[way] = {name: facts[name] for name in FIGURES}
    if numbers and found[ways[0]]["words"]["value"] > MAX_BASELINE:
        sys.exit(f"the judge does not understand {ways[0]}: {found}")
    return found


def run(doc: str, ways: Sequence[str], load: Callable[[], Mapping[str, Way]]) -> None:
    """The command line of such a benchmark."""
    parser = argparse.ArgumentParser(description=doc.split("\n", maxsplit=1)[0])
    parser.add_argument("--rows", type=Path, required=True)
    parser.add_argument("--sentences", type=int, default=50)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--ways", nargs="+", choices=ways, default=ways, help="Only these.")
    parser.add_argument("--report", action="store_true")
    given = parser.parse_args()
    if not given.report:
        judge(given, load)
    print(json.dumps(report(read(given.rows), given.ways)))
