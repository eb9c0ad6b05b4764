"""How long it takes to cut texts of forty kinds: linear in their length, and bounded.

    python benchmarks/text_time.py
    PYTHONPATH=OLD/src python benchmarks/text_time.py --characters 4000    # another version

For each kind: seconds of processor time for 10,000 and for 20,000 characters, by the sentence and
as a whole, the best of seven rounds. Fails if twice the text takes more than 2.5 times as long
(times under 2 ms are not compared), or if 20,000 characters take more than the bar.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import time
from collections.abc import Iterator
from typing import Any

from nightingale.text.split import SINGLE, WHOLE, SplitPolicy, split

MAX_RATIO, MAX_S, N_CHARACTERS = 2.5, 0.05, 20_000
_COMPARED_S, _GIVE_UP_S, _N_ROUNDS = 2e-3, 2.0, 7

PROSE = (
    "The old man looked at the sea; it was calm. \u201cAre you sure?\u201d he asked. "
    "Mr. Smith said yes!\n"
)
REPEATED = {
    "closing quotes": '"', "curly quotes": "\u201d", "apostrophes": "'", "guillemets": "\u00bb",
    "opening brackets": "(", "closing brackets": ")", "pairs of brackets": "()", "braces": "{}",
    "full stops": ".", "stops and spaces": ". ", "stops and quotes": '."', "ellipses": "\u2026",
    "questions": "!?", "commas": ",", "semicolons": "; ", "dashes": "\u2014", "hyphens": "-",
    "spaces": " ", "tabs": "\t", "newlines": "\n", "paragraphs": "\n\n", "form feeds": "a\f",
    "letters": "x", "words": "word ", "digits": "12345", "amounts": "$1,000.50 ",
    "abbreviations": "Mr. ", "initials": "U.S.A.", "numbered items": "1. ", "bullets": "- \n",
    "headings": "#", "han": "\u4f60\u597d\u3002\u300d", "kana": "\u3042\u3001",
    "arabic": "\u0645\u0631\u062d\u0628\u0627\u061f ", "emoji": "\U0001f389",
    "devanagari": "\u0928\u092e\u0938\u094d\u0924\u0947\u0964 ", "joiners": "\u200d",
    "combining marks": "a\u0301\u0302\u0303", "direction marks": "\u202e", "prose": PROSE,
}  # fmt: skip


def kinds(n_characters: int, seed: int = 0) -> Iterator[tuple[str, str]]:
    """Forty kinds that repeat themselves, and mixtures of them."""
    for kind, unit in REPEATED.items():
        yield kind, (unit * n_characters)[: n_characters - 1] + "a"
    units = list(REPEATED.values())
    for number in range(4):
        generator = random.Random(f"{seed} {number}")  # half a text is the beginning of the whole
        some = generator.sample(units, 4)
        text = "".join(generator.choices(some, k=n_characters))
        yield f"mixture {number}", text[:n_characters]


def seconds(text: str, policy: SplitPolicy) -> float:
    begun = time.process_time()
    split(text, policy)
    return time.process_time() - begun


def measure(n_characters: int = N_CHARACTERS, max_s: float = MAX_S) -> list[dict[str, Any]]:
    """A row for each kind and policy.

    The best of a few rounds over all kinds: whatever else runs on this machine only adds to a time,
    and a processor that is slow for seconds is slow for one round.
    """
    texts, halves = dict(kinds(n_characters)), dict(kinds(n_characters // 2))
    policies = {"single": SINGLE, "whole": WHOLE}
    best = {(kind, name): [float("inf"), float("inf")] for kind in texts for name in policies}
    for _ in range(_N_ROUNDS):
        for (kind, name), times in best.items():
            for at, text in enumerate((halves[kind], texts[kind])):
                if not any(_GIVE_UP_S < known < float("inf") for known in times):
                    times[at] = min(times[at], seconds(text, policies[name]))
    return [
        _row(kind, name, half_s, whole_s, max_s) for (kind, name), (half_s, whole_s) in best.items()
    ]


def _row(kind: str, policy: str, half_s: float, whole_s: float, max_s: float) -> dict[str, Any]:
    is_linear = whole_s < _COMPARED_S or whole_s <= MAX_RATIO * half_s
    times = {"half_ms": round(1e3 * half_s, 2), "whole_ms": round(1e3 * whole_s, 2)}
    return {"kind": kind, "policy": policy, **times, "ok": is_linear and whole_s <= max_s}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--characters", type=int, default=N_CHARACTERS)
    parser.add_argument("--max-seconds", type=float, default=MAX_S)
    given = parser.parse_args()
    rows = measure(given.characters, given.max_seconds)
    for row in rows:
        if not row["ok"]:
            print("FAILED", row)
    failed = sum(not row["ok"] for row in rows)
    slowest = max(rows, key=lambda row: float(row["whole_ms"]))
    print(json.dumps({"proof": "text_time", "kinds": len(rows) // 2, "trials": len(rows),
                      "failed": failed, "slowest": slowest, "ok": not failed}))  # fmt: skip
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
