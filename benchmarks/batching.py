"""T3 tokens a second of one request and of several that share each pass through the layers.

    python benchmarks/batching.py --least 4
    PYTHONPATH=OLD/src python benchmarks/batching.py --live 1    # another version

A model as large as the released Multilingual, with random weights. Rounds of one request and of
several take turns, so that other load meets both; the best step of each counts. Seconds are those
of the clock, or with `--clock cpu` those of the processors, on a machine that others use as well.
Fails if several requests together make fewer than `--least` times the tokens of one.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from nightingale.backends.base import TokenEngine, TokenRequest
from nightingale.core import Plan
from nightingale.loader import Components, LoadOptions
from nightingale.measure.random_model import random_components
from nightingale.nn import native

TEXT = "It is late, and nobody minds that the lights are still on in the kitchen."
MAX_TOKENS = 1000
PRECISIONS = ("int8", "int4")
CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}


def add(model: Components, seed: int) -> int:
    """A request that does not end: its tokens are given, and computed all the same."""
    options = replace(model.spec.options, seed=seed, max_tokens=MAX_TOKENS)
    text = model.tokenizer.encode(TEXT, "en")
    forced = tuple((7 * n + seed) % 6000 for n in range(MAX_TOKENS))
    return model.loaded.token_engine.add(TokenRequest(text, model.voice.t3, options, forced))


def seconds(
    engine: TokenEngine, numbers: Sequence[int], n_steps: int, clock: Callable[[], float]
) -> float:
    """The shortest of so many steps."""
    best = float("inf")
    for _ in range(n_steps):
        begun = clock()
        events = engine.step(numbers)
        best = min(best, clock() - begun)
        assert not any(event.is_last for event in events), events
    return best


def measure(t3: str, args: argparse.Namespace) -> dict[str, Any]:
    plan = Plan("batching", t3=t3)  # type: ignore[arg-type]
    model = random_components(args.model, LoadOptions("cpu", plan=plan, threads=args.threads))
    engine, clock = model.loaded.token_engine, CLOCKS[args.clock]
    numbers = [add(model, seed) for seed in range(args.live + 1)]
    engine.step(numbers)  # prompts
    alone, together = numbers[:1], numbers[1:]
    best_alone = best_together = float("inf")
    for _ in range(args.rounds):
        best_alone = min(best_alone, seconds(engine, alone, args.steps, clock))
        best_together = min(best_together, seconds(engine, together, args.steps, clock))
    return {
        "t3": t3,
        "tokens_per_s_1": round(1 / best_alone, 2),
        f"tokens_per_s_{args.live}": round(args.live / best_together, 2),
        "ratio": round(args.live * best_alone / best_together, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default="multilingual-v3")
    parser.add_argument("--t3", nargs="+", choices=("int8", "int4", "fp32"))
    parser.add_argument("--live", type=int, default=8)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--clock", choices=CLOCKS, default="wall")
    parser.add_argument("--least", type=float, default=0.0)
    args = parser.parse_args()
    results = [measure(t3, args) for t3 in args.t3 or PRECISIONS]
    library = native.library()
    head = {"proof": "batching", "model": args.model, "threads": torch.get_num_threads()}
    head |= {"clock": args.clock, "kernel": library and library._name.rsplit("/", 1)[-1]}
    print(json.dumps({**head, "least": args.least, "results": results}))
    sys.exit(any(result["ratio"] < args.least for result in results))


if __name__ == "__main__":
    main()
