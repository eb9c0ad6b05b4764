"""From the start of a process to the first sample, and what of it is loading the model.

Multilingual as large as life, with random weights, lies on this machine in the released layout; its
T3 was packed once. Then a new Python says a sentence, again and again, the files being in the
system's cache. The last line is JSON.

    python benchmarks/startup.py FOLDER --plan live
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from nightingale.core import Plan
from nightingale.loader import pack_t3
from tests.tiny_release import full_s3gen, make_release

MODEL = "multilingual-hi"
SPEAK = """
import sys, time
began = float(sys.argv[1])
from pathlib import Path
from nightingale.pipeline import Nightingale
imported = time.time()
release, home, plan, decoder = sys.argv[2:]
tts = Nightingale.load(release, home=Path(home), plan=plan, decoder=decoder)
loaded = time.time()
first = next(tts.stream("The quick brown fox jumps over the lazy dog.", max_tokens=50))
print(imported - began, loaded - imported, time.time() - loaded, time.time() - began)
"""


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("folder", type=Path, help="Is filled with 4 GB, if it is empty.")
    arguments.add_argument("--plan", default="live")
    arguments.add_argument("--decoder", default="meanflow")
    arguments.add_argument("--rounds", type=int, default=5)
    chosen = arguments.parse_args()
    release, home = chosen.folder / "release", chosen.folder / "home"
    if not release.exists():
        make_release(release, MODEL, full_size=True)
        full_s3gen(release / "s3gen_meanflow.safetensors", meanflow=True)
    if Plan.named(chosen.plan).t3 != "fp32":
        pack_t3(str(release), home, Plan.named(chosen.plan))  # as `nightingale quantize` does
    command = [sys.executable, "-c", SPEAK]
    rounds: list[list[float]] = []
    for _ in range(chosen.rounds + 1):  # the first fills the system's cache
        arguments = [str(time.time()), str(release), str(home), chosen.plan, chosen.decoder]
        done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=True)
        rounds.append([float(part) for part in done.stdout.split()])
    columns = ("import_s", "load_s", "first_sample_s", "total_s")
    medians = map(statistics.median, zip(*rounds[1:], strict=True))
    facts = dict(zip(columns, (round(x, 2) for x in medians), strict=True))
    print(json.dumps({"plan": chosen.plan, "decoder": chosen.decoder, **facts}))


if __name__ == "__main__":
    main()
