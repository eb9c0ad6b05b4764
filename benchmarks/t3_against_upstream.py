"""Time per T3 step, ours and upstream's, in one process on the same full-size random weights.

Run it inside the upstream environment, which has both:

    PYTHONPATH=src .venv-upstream/bin/python benchmarks/t3_against_upstream.py

Rounds alternate, so that a noisy machine disturbs both alike; medians and their ratio are printed,
and one JSON line at the end. Upstream's analyzer is off, as in its HEAD.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "parity"))
sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.parity import upstream_t3
from tests.tiny import tiny_text, tiny_voice

from nightingale.core import Options
from nightingale.t3.model import CONFIGS, DEAD_TENSORS, T3


def main() -> None:
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--family", default="multilingual", choices=list(CONFIGS))
    arguments.add_argument("--steps", type=int, default=50)
    arguments.add_argument("--rounds", type=int, default=5)
    chosen = arguments.parse_args()
    config = CONFIGS[chosen.family]
    theirs = upstream_t3.build(asdict(config))
    upstream_t3.randomize(theirs, 7)
    dead = tuple(name.rstrip("*") for name in DEAD_TENSORS)
    state = {k: v for k, v in theirs.state_dict().items() if not k.startswith(dead)}
    ours = T3(config).eval().requires_grad_(False)
    ours.load_state_dict(state, assign=True)

    text, voice = tiny_text(n_tokens=60, family=config.family), tiny_voice()
    options = Options.of(config.family)
    prefix = ours.prefix(voice, options.exaggeration)

    def our_run(n_steps: int) -> None:
        for _ in ours.decode(text, prefix, replace(options, max_tokens=n_steps)):
            pass

    def their_run(n_steps: int) -> None:
        case = {"text": text, "seed": 0, "n_tokens": n_steps, "options": asdict(options)}
        with contextlib.redirect_stderr(io.StringIO()):
            upstream_t3.speak(theirs, case, {"speaker": voice.speaker, "tokens": voice.tokens})

    def step_ms(run: Callable[[int], None]) -> tuple[float, float]:
        """Prefill and one token; then what each further step adds."""
        started = time.perf_counter()
        run(1)
        first = time.perf_counter() - started
        started = time.perf_counter()
        run(1 + chosen.steps)
        return 1e3 * first, 1e3 * (time.perf_counter() - started - first) / chosen.steps

    times: dict[str, list[tuple[float, float]]] = {"ours": [], "upstream": []}
    for run in (our_run, their_run):
        run(3)
    for _ in range(chosen.rounds):
        times["ours"].append(step_ms(our_run))
        times["upstream"].append(step_ms(their_run))
    result: dict[str, object] = {"family": config.family, "threads": torch.get_num_threads()}
    for name, rows in times.items():
        result[f"{name}_first_token_ms"] = round(statistics.median(row[0] for row in rows), 1)
        result[f"{name}_step_ms"] = round(statistics.median(row[1] for row in rows), 1)
    ratios = [u[1] / o[1] for o, u in zip(times["ours"], times["upstream"], strict=True)]
    result["upstream_step_over_ours"] = round(statistics.median(ratios), 2)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
