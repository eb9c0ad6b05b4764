# ruff: noqa: E501
"""How well figures are heard: Fledgling says 100 sentences full of them, Whisper writes them down.

    python -m training.assets whisper-base
    python benchmarks/spoken_figures.py --judges FOLDER --rows heard.jsonl --json FILE

Three ways: with normalization, without it (where Fledgling's tokenizer still spells plain English
numbers by itself), and the reference, spelled out by hand, as the floor. Word error rate against the
reference; digits and words count as the same. Intervals are 95 %, by bootstrap over sentences; that
of "off - auto" is paired.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from nightingale import Nightingale
from nightingale.measure.interval import bootstrap
from nightingale.measure.transcriber import Transcriber
from nightingale.measure.words import word_edits
from nightingale.text.normalization import normalize_text

FRAMES = (
    ("They paid {} for it.", "It cost {} last year."),
    ("We met on {} in the park.", "The letter came on {}."),
    ("The train leaves at {} today.", "She woke up at {} again."),
    ("The box weighs {} in all.", "He carried {} up the hill."),
    ("About {} of them agreed.", "It rose by {} this week."),
    ("He finished {} in the race.", "This is the {} letter."),
    ("They walked {} that day.", "It is {} to the river."),
    ("There were {} people here.", "She counted {} of them."),
    ("He was born in {} or so.", "The house was built in {}."),
    ("It is {} outside now.", "The water was {} cold."),
)
FIGURES = (
    {"$12.50": "twelve dollars and fifty cents", "$3": "three dollars", "€40": "forty euros", "£7.25": "seven pounds and twenty-five pence", "$1.5 million": "one point five million dollars"},
    {"May 3rd": "May third", "June 21": "June twenty-first", "2024-05-03": "May third, twenty twenty-four", "July 4, 1999": "July fourth, nineteen ninety-nine", "March 12th": "March twelfth"},
    {"10:45 a.m.": "ten forty-five a m", "6:30": "six thirty", "9:05": "nine oh five", "8:00": "eight o'clock", "11:15 p.m.": "eleven fifteen p m"},
    {"25 kg": "twenty-five kilograms", "3 lbs": "three pounds", "500 g": "five hundred grams", "1.5 kg": "one point five kilograms", "60 kg": "sixty kilograms"},
    {"25%": "twenty-five percent", "3.5%": "three point five percent", "50 %": "fifty percent", "99%": "ninety-nine percent", "7%": "seven percent"},
    {"1st": "first", "2nd": "second", "3rd": "third", "21st": "twenty-first", "12th": "twelfth"},
    {"3 km": "three kilometers", "12 mi": "twelve miles", "500 m": "five hundred meters", "6 ft": "six feet", "1.2 km": "one point two kilometers"},
    {"1,200": "one thousand two hundred", "36": "thirty-six", "10-20": "ten to twenty", "405": "four hundred five", "7": "seven"},
    {"1984": "nineteen eighty-four", "2024": "twenty twenty-four", "1850": "eighteen fifty", "1999": "nineteen ninety-nine", "1776": "seventeen seventy-six"},
    {"25 °C": "twenty-five degrees Celsius", "-5 °C": "minus five degrees Celsius", "3 °C": "three degrees Celsius", "90 °F": "ninety degrees Fahrenheit", "12 °C": "twelve degrees Celsius"},
)  # fmt: skip


def sentences() -> list[tuple[str, str]]:
    """As they are written, and spelled out."""
    return [
        (frame.format(written), frame.format(said))
        for frames, figures in zip(FRAMES, FIGURES, strict=True)
        for frame in frames
        for written, said in figures.items()
    ]


WAYS = ("auto", "off", "spelled_out")


def hear(judges: Path, seed: int, rows: Path, seconds: float) -> list[dict[str, Any]]:
    """What was heard of each sentence, kept in a file, so that a run may stop and go on."""
    heard = [json.loads(line) for line in rows.read_text().splitlines()] if rows.exists() else []
    if len(heard) == len(sentences()):
        return heard
    until = time.monotonic() + seconds
    model = Nightingale.load("fledgling", plan="balanced", threads=1)
    transcriber = Transcriber(judges, 1)
    for number, (written, spelled) in list(enumerate(sentences()))[len(heard) :]:
        if time.monotonic() > until:
            break
        row: dict[str, Any] = {"written": written, "spelled": spelled}
        for way in WAYS:
            text, option = (spelled, "off") if way == "spelled_out" else (written, way)
            if way == "spelled_out" and normalize_text(written, "en").spoken == spelled:
                row[way] = row["auto"]  # the same text, and so the same samples
            else:
                audio = model.say(text, seed=seed + number, normalization=option)
                row[way] = transcriber.transcribe(audio.samples, model.sample_rate)
        with rows.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
        heard.append(row)
    return heard


def summary(heard: list[dict[str, Any]]) -> dict[str, Any]:
    edits = {way: [word_edits(row["spelled"], row[way]) for row in heard] for way in WAYS}
    wrong = {way: sum(found.total for found in all_) for way, all_ in edits.items()}
    words = [found.n_reference for found in edits["auto"]]
    n_words = sum(words)
    counts = {way: [found.total for found in all_] for way, all_ in edits.items()}
    pairs = zip(counts["off"], counts["auto"], strict=True)
    counts["off - auto"] = [off - auto for off, auto in pairs]
    intervals = {}
    for way, n_wrong in counts.items():
        found = bootstrap(n_wrong, words)
        intervals[way] = [round(100 * found.low, 1), round(100 * found.high, 1)]
    return {
        "sentences": len(heard),
        "words": n_words,
        "wrong": wrong,
        "word_error_rate": {way: round(100 * n / n_words, 1) for way, n in wrong.items()},
        "interval_95": intervals,
        "heard": heard[::10],
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--judges", type=Path, required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rows", type=Path, required=True, help="file that keeps what was heard")
    parser.add_argument("--seconds", type=float, default=1e9, help="stop then; a later run goes on")
    given = parser.parse_args()
    heard = hear(given.judges, given.seed, given.rows, given.seconds)
    if len(heard) < len(sentences()):
        print(f"{len(heard)} of {len(sentences())} sentences; run it again")
        return 2
    result = summary(heard)
    run = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    )
    command = f"python benchmarks/spoken_figures.py --seed {given.seed}"
    line = json.dumps({"date": time.strftime("%Y-%m-%d"), "machine": platform.machine(), "commit": run.stdout.strip(),
                       "command": command, "result": result}, ensure_ascii=False)  # fmt: skip
    print(line)
    if given.json:
        given.json.write_text(line + "\n", encoding="utf-8")
    rates = result["word_error_rate"]
    return int(rates["auto"] > rates["off"])


if __name__ == "__main__":
    sys.exit(main())
