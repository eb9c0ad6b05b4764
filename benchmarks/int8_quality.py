"""Flow and vocoder in 8 bits, by the judges: word error rate and speaker similarity.

    scripts/quality --fetch
    python -m benchmarks.int8_quality --rows rows.jsonl --sentences 200 --seconds 600
    python -m benchmarks.int8_quality --rows rows.jsonl --report

The bundled model. T3 is in fp32 everywhere, so that ways with the same seed say the same speech
tokens, and only flow and vocoder differ; two ways are the reference with other seeds.
"""

from __future__ import annotations

from dataclasses import replace

from benchmarks.judged_ways import Way, run
from nightingale import Nightingale
from nightingale.core import PLANS, Plan

LIVE = replace(PLANS["live"], t3="fp32", flow="fp32", vocoder="fp32")
WAYS = {  # a plan, and the first seed
    "fp32": (Plan(), 0),
    "int8": (Plan("int8", flow="int8", vocoder="int8"), 0),
    "fp32 in windows": (LIVE, 0),
    "int8 in windows": (replace(LIVE, flow="int8", vocoder="int8"), 0),
    "fp32, seeds from 1000": (Plan(), 1000),
    "fp32, seeds from 2000": (Plan(), 2000),
}


def load() -> dict[str, Way]:
    models = {
        plan: Nightingale.load("fledgling", plan=plan, watermark=False) for plan, _ in WAYS.values()
    }

    def way(plan: Plan, first_seed: int) -> Way:
        return lambda text, number: models[plan].say(text, seed=first_seed + number)

    return {name: way(*which) for name, which in WAYS.items()}


if __name__ == "__main__":
    run(__doc__, list(WAYS), load)
