"""Speech with flow and vocoder in 8 bits against fp32: real-time factor and first audible sample.

    python -m benchmarks.int8_speech [--trials 5] [--model nano]

Models as large as the released ones have random weights and the mean-flow decoder; 5 s of speech.
Nano streams with the plan `live`; Multilingual with `fast` (whole) and `live-fast`. fp32 and 8 bits
take turns, medians count. Prints a line of JSON for each.
"""

from __future__ import annotations

import argparse
import json
import statistics
from dataclasses import replace
from typing import Any

import torch

from nightingale.core import PLANS, TOKENS_PER_SECOND
from nightingale.loader import LoadOptions
from nightingale.measure import texts
from nightingale.measure.bench import Trial, speak
from nightingale.measure.random_model import random_components
from nightingale.pipeline import Nightingale

CASES = (("nano", "live"), ("multilingual-v3", "fast"), ("multilingual-v3", "live-fast"))
N_TOKENS = 5 * TOKENS_PER_SECOND


def loaded(model: str, plan: str, precision: Any) -> Nightingale:
    wanted = replace(PLANS[plan], flow=precision, vocoder=precision)
    options = LoadOptions("cpu", decoder="meanflow", watermark=False, plan=wanted)
    return Nightingale(random_components(model, options))


def facts(trials: list[Trial]) -> dict[str, float]:
    def median(values: list[float], digits: int = 0) -> float:
        return round(statistics.median(values), digits)

    return {
        "rtf": median([trial.wall_ms / 1e3 / trial.seconds for trial in trials], 2),
        "audible_ms": median([trial.audible_ms for trial in trials]),
        "first_token_ms": median([trial.first_token_ms for trial in trials]),
        "t3_ms": median([trial.timings.tokens_ms for trial in trials]),
        "flow_ms": median([trial.timings.mel_ms for trial in trials]),
        "vocoder_ms": median([trial.timings.samples_ms for trial in trials]),
    }


def measure(model: str, plan: str, n_trials: int) -> dict[str, Any]:
    ways = {precision: loaded(model, plan, precision) for precision in ("fp32", "int8")}
    trials: dict[str, list[Trial]] = {precision: [] for precision in ways}
    for number, text in enumerate(texts.read("held_out", n_trials + 1)):
        for precision, tts in ways.items():
            trial = speak(tts, text, None, N_TOKENS)
            if number:  # the first one warms up
                trials[precision].append(trial)
    found = {precision: facts(of) for precision, of in trials.items()}
    given = {precision: str(tts.components.plan) for precision, tts in ways.items()}
    return {"model": model, "plan": given["int8"], **found}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--trials", type=int, default=5)
    parser.add_argument("--model", choices=sorted({model for model, _ in CASES}))
    given = parser.parse_args()
    n_trials = given.trials
    for model, plan in CASES:
        if given.model not in (None, model):
            continue
        head = {"proof": "int8_speech", "threads": torch.get_num_threads(), "trials": n_trials}
        print(json.dumps({**head, **measure(model, plan, n_trials)}), flush=True)


if __name__ == "__main__":
    main()
