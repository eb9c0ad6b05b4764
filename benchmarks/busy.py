"""Speech beside other work: `say`, `stream` and `bench`, idle and beside busy processes, by turns.

    python benchmarks/busy.py                          # as it is shipped, 5 rounds
    python benchmarks/busy.py --wait default --wait passive --wait 1000     # OpenMP's threads

Each round runs every kind under every setting and load once, in that order, so that a slow minute
of the machine meets all of them. Prints medians in seconds, and a line of JSON.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

TEXT = "I've turned off the kitchen lights and set the thermostat to twenty one degrees."
STREAM = f"""
import time
from nightingale import Nightingale
model = Nightingale.load("fledgling", plan="live")
for _ in model.stream("Hello.", max_tokens=12): pass
begun = time.perf_counter()
for _ in model.stream({TEXT!r}): pass
print(time.perf_counter() - begun)
"""
PYTHON = sys.executable
KINDS = {
    "say": [PYTHON, "-m", "nightingale", "say", TEXT, "-o", "speech.wav"],
    "stream": [PYTHON, "-c", STREAM],
    "bench": [PYTHON, "-m", "nightingale", "bench", "--plan", "live", "--trials", "2",
              "--seconds", "2"],
}  # fmt: skip


def environment(wait: str, home: str) -> dict[str, str]:
    """`shipped` is what a user gets, `default` what OpenMP does by itself; numbers are spins."""
    clean = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("OMP_", "GOMP_", "NIGHTINGALE_"))
    }
    clean["NIGHTINGALE_HOME"] = home
    if wait == "default":
        clean["GOMP_SPINCOUNT"] = "300000"
    elif wait == "passive":
        clean["OMP_WAIT_POLICY"] = "PASSIVE"
    elif wait != "shipped":
        clean["GOMP_SPINCOUNT"] = wait
    return clean


@contextmanager
def load(n_processes: int) -> Iterator[None]:
    """Processes that do nothing but compute."""
    busy = [subprocess.Popen([PYTHON, "-c", "while True: pass"]) for _ in range(n_processes)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def seconds(kind: str, environ: dict[str, str], folder: str) -> float:
    """Of the whole command; of `stream`, of the speech alone, for the process stays."""
    begun = time.perf_counter()
    done = subprocess.run(
        KINDS[kind], env=environ, cwd=folder, capture_output=True, text=True, check=True
    )
    return float(done.stdout) if kind == "stream" else time.perf_counter() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--wait", action="append", help="shipped, default, passive, or spins")
    parser.add_argument("--busy", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS))
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    took: dict[tuple[str, str, int], list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder:
        for number in range(given.rounds):
            for n_busy in given.busy:
                for kind in given.kinds:
                    for wait in given.wait or ["shipped"]:
                        with load(n_busy):
                            found = seconds(kind, environment(wait, folder), folder)
                        took[wait, kind, n_busy].append(found)
                        where = f"{wait:8} {kind:6} beside {n_busy}"
                        print(f"round {number + 1}: {where}: {found:.2f} s", file=sys.stderr)
    rows = [
        {
            "wait": wait,
            "kind": kind,
            "busy": n_busy,
            "median_s": round(statistics.median(each), 3),
            "by_idle": round(
                statistics.median(each) / statistics.median(took[wait, kind, given.busy[0]]), 2
            ),
            "each_s": [round(x, 2) for x in each],
        }
        for (wait, kind, n_busy), each in sorted(took.items())
    ]
    for row in rows:
        print(
            "{wait:8} {kind:6} beside {busy}: {median_s:7.2f} s, {by_idle:5.2f} x idle".format(
                **row
            )
        )
    line = {"proof": "busy", "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
            "cores": os.cpu_count(), "rows": rows}  # fmt: skip
    print(json.dumps(line))
    results = Path(__file__).parent / "results"
    with (results / f"busy-{line['date']}.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
