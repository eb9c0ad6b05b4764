"""What somebody hears who uses the page: gaps, and how soon there is sound; ten runs.

    python benchmarks/page.py --factor 0.9            a worker that is a little faster than speech
    python benchmarks/page.py --factor 2 --max-prebuffer 1     too slow, and not waited for

The worker repeats one speech at the given real-time factor. A browser plays it, and an instrument
in the browser measures what the page reports: gaps, and the first audible sample. Prints a line of
JSON; fails if what is reported is not true, or if there is a gap at a factor below 1.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

import nightingale
from tests.server.browser import browsing, listen, repeating

BUNDLED = Path(nightingale.__file__).parent / "fledgling"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", type=Path, default=BUNDLED)
    parser.add_argument("--factor", type=float, default=0.9)
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--max-prebuffer", default="10")
    given = parser.parse_args()
    flags = ("--max-prebuffer", given.max_prebuffer)
    with (
        tempfile.TemporaryDirectory() as home,
        repeating(given.model, Path(home), given.factor, *flags) as server,
        browsing(server) as page,
    ):
        for _ in range(3):
            server.speak("once, so that the server knows its speed")
        runs = [listen(page) for _ in range(given.runs)]
        underruns = server.meter("underruns_total")
    errors_ms = [abs(run["first_ms"] - run["true_first_ms"]) for run in runs]
    n_gaps = [run["true_gaps"] for run in runs]
    is_true = all(run["gaps"] == run["true_gaps"] for run in runs) and max(errors_ms) <= 20
    print(
        json.dumps(
            {
                "factor": given.factor,
                "runs": given.runs,
                "gaps": sum(n_gaps),
                "gap_s": round(sum(run["true_gap_s"] for run in runs), 3),
                "server_underruns": underruns,
                "first_audible_ms": [round(run["true_first_ms"]) for run in runs],
                "first_error_ms": round(max(errors_ms), 2),
                "ok": is_true and (given.factor >= 1 or not any(n_gaps)),
            }
        )
    )
    sys.exit(not (is_true and (given.factor >= 1 or not any(n_gaps))))


if __name__ == "__main__":
    main()
