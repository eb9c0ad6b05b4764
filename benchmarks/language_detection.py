"""How often `language: auto` is right: short sentences in 23 languages, whole and their beginnings.

    python -m benchmarks.language_detection --json benchmarks/results/language_detection.jsonl

The sentences are those of the text parity (tests/parity/texts.py); nothing was tuned on them.
Prints the table of docs/languages.md.
"""

from __future__ import annotations

import argparse
import json
import platform
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from nightingale.text.detection import detect_language
from nightingale.text.languages import LANGUAGES
from tests.parity.texts import SENTENCES

SHORT = 3  # words, or so many times 4 characters of a script without spaces


def beginning(sentence: str) -> str:
    words = sentence.split()
    return " ".join(words[:SHORT]) if len(words) > SHORT else sentence[: 4 * SHORT]


def measure(code: str, sentences: list[str]) -> dict[str, Any]:
    found = [detect_language(sentence, LANGUAGES) for sentence in sentences]
    wrong = Counter(one.code for one in found if one.code != code)
    sure = [one.confidence for one in found if one.code == code]
    return {
        "sentences": len(sentences),
        "right": len(sentences) - wrong.total(),
        "mean_confidence": round(sum(sure) / max(1, len(sure)), 2),
        "taken_for": dict(wrong),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    result: dict[str, Any] = {"whole": {}, "beginning": {}}
    for code in LANGUAGES:
        sentences = SENTENCES[code].strip().splitlines()
        result["whole"][code] = measure(code, sentences)
        result["beginning"][code] = measure(code, [beginning(one) for one in sentences])
    print("| language | sentences | whole | first 3 words | confidence | taken for |")
    print("| --- | --- | --- | --- | --- | --- |")
    for code, name in LANGUAGES.items():
        whole, short = result["whole"][code], result["beginning"][code]
        wrong = Counter(whole["taken_for"]) + Counter(short["taken_for"])
        taken = ", ".join(f"{other} {n}" for other, n in wrong.most_common()) or "-"
        print(f"| {name} | {whole['sentences']} | {whole['right']} | {short['right']} | "
              f"{whole['mean_confidence']:.2f} | {taken} |")  # fmt: skip
    for way, rows in result.items():
        right, n = (sum(row[key] for row in rows.values()) for key in ("right", "sentences"))
        print(f"{way}: {right} of {n}, {100 * right / n:.1f} %")
    long = "Das ist ein Satz. " * 60_000
    begun = time.perf_counter()
    detect_language(long, LANGUAGES)
    result["megabyte_ms"] = round(1e3 * (time.perf_counter() - begun), 1)
    print(f"a text of {len(long):,} characters: {result['megabyte_ms']} ms")
    if given.json:
        commit = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
        ).stdout.strip()
        line = {"date": time.strftime("%Y-%m-%d"), "machine": platform.machine(), "commit": commit,
                "command": "python -m benchmarks.language_detection", "result": result}  # fmt: skip
        with given.json.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
    n_right = sum(row["right"] for row in result["whole"].values())
    return int(n_right < 0.9 * sum(row["sentences"] for row in result["whole"].values()))


if __name__ == "__main__":
    sys.exit(main())
