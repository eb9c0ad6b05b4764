"""One request alone, beside another version of the code: processor seconds for the same text.

    python benchmarks/alone.py --source OLD/src

The bundled model says one text with each plan, on one thread. Versions take turns, each time in a
process of its own; the best of a process's tries counts, and the median of the rounds. Prints a
line of JSON; fails if this version takes more than `--most` times the other's time.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

import nightingale

MODEL = Path(nightingale.__file__).parent / "fledgling"
HERE = Path(nightingale.__file__).parents[1]
PLANS = ("reference", "fast", "live")
SPEAK = """
import json, sys, time
from pathlib import Path
import torch
torch.set_num_threads(1)
from nightingale import Nightingale
model, n_tries, *plans = sys.argv[1:]
best = {}
for plan in plans:
    tts = Nightingale.load(Path(model), device="cpu", plan=plan)
    text = "It is late, and nobody minds that the lights are still on."
    tts.say("Ready.", seed=1)
    for _ in range(int(n_tries)):
        begun = time.process_time()
        tts.say(text, seed=3)
        best[plan] = min(best.get(plan, 1e9), time.process_time() - begun)
print(json.dumps(best))
"""


def spoken(source: Path, n_tries: int) -> dict[str, float]:
    environ = {**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", SPEAK, str(MODEL), str(n_tries), *PLANS]
    made = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(made.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--source", type=Path, required=True, help="src of the other version")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tries", type=int, default=3)
    parser.add_argument("--most", type=float, default=1.03)
    given = parser.parse_args()
    rounds: dict[str, list[dict[str, float]]] = {"this": [], "other": []}
    for _ in range(given.rounds):
        for name, source in (("this", HERE), ("other", given.source)):
            rounds[name].append(spoken(source, given.tries))
            print(name, rounds[name][-1], file=sys.stderr, flush=True)
    facts = {}
    for plan in PLANS:
        this, other = (
            statistics.median(one[plan] for one in rounds[name]) for name in ("this", "other")
        )
        facts[plan] = {
            "this_s": round(this, 3),
            "other_s": round(other, 3),
            "ratio": round(this / other, 3),
        }
    print(json.dumps({"proof": "alone", "rounds": given.rounds, **facts}))
    sys.exit(any(fact["ratio"] > given.most for fact in facts.values()))


if __name__ == "__main__":
    main()
