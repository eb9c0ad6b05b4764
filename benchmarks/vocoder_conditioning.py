"""What torch's vocoder alone makes of a mel that is changed in its last digits.

    python -m benchmarks.vocoder_conditioning --utterances 50

Two backends compute mels that are 1e-5 apart (benchmarks/mlx_equality.py), of up to 11.5: that is
how fp32 rounds. Here no other backend takes part: torch's mel of each sentence, and the same with
uniform noise of at most 1e-5, are both made sound by torch's vocoder, whole and in windows. How far
the samples are apart is the least that can be asked of any two backends with their own mels. With
`--change 0` nothing differs.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from benchmarks.mlx_equality import MAX_SAMPLE, WHOLE, WINDOWED, loaded, mel_of, said, vocoded
from nightingale.core import N_SPEECH_CODES
from nightingale.measure import texts
from nightingale.measure.stages import torch_stages


def compare(first_utterance: int, n_utterances: int, change: float, n_draws: int) -> dict[str, Any]:
    models = {
        plan.name: loaded("fledgling", "torch", plan, "meanflow") for plan in (WHOLE, WINDOWED)
    }
    first = models[WHOLE.name]
    apart: dict[str, list[float]] = {name: [] for name in models}
    pitch = 0.0
    end = first_utterance + n_utterances
    for seed, text in list(enumerate(texts.read("short", end)))[first_utterance:]:
        options = replace(first.spec.options, seed=seed)
        tokens = said(first, first.tokenizer.encode(text, "en"), options)
        codes = [token for token, _ in tokens if token < N_SPEECH_CODES]
        rng = np.random.default_rng(seed)
        for name, model in models.items():
            mel = mel_of(model, codes, seed)
            wanted, worst = vocoded(model, mel, codes, seed), 0.0
            for _ in range(n_draws):
                other = mel + rng.uniform(-change, change, mel.shape).astype(np.float32)
                made = vocoded(model, other, codes, seed)
                worst = max(worst, float(np.abs(wanted - made).max()))
                pitch = max(pitch, _pitch_apart(model, mel, other))
            apart[name].append(worst)
        print(f"{seed + 1} of {end}: {apart}", file=sys.stderr)
    return {
        "first": first_utterance,
        "utterances": n_utterances,
        "draws": n_draws,
        "change_of_mel": change,
        "samples": {name: max(found) for name, found in apart.items()},
        "median": {name: float(np.median(found)) for name, found in apart.items()},
        f"utterances_above_{MAX_SAMPLE:.0e}": {
            name: sum(one > MAX_SAMPLE for one in found) for name, found in apart.items()
        },
        "pitch_hz": pitch,
    }


@torch.inference_mode()
def _pitch_apart(model: Any, mel: np.ndarray, other: np.ndarray) -> float:
    f0 = torch_stages(model).vocoder.f0
    return float((f0(torch.from_numpy(mel)) - f0(torch.from_numpy(other))).abs().max())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--utterances", type=int, default=50)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--change", type=float, default=1e-5)
    parser.add_argument("--draws", type=int, default=2)
    given = parser.parse_args()
    torch.set_num_threads(1)
    begun = time.perf_counter()
    result = compare(given.first, given.utterances, given.change, given.draws)
    print(json.dumps({**result, "seconds": round(time.perf_counter() - begun)}))


if __name__ == "__main__":
    main()
