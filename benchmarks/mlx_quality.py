"""Speech of the backend mlx with fewer bits, by the judges: word error rate, speaker similarity.

    scripts/quality --fetch
    python -m benchmarks.mlx_quality --rows rows.jsonl --sentences 50 --seconds 600
    python -m benchmarks.mlx_quality --rows rows.jsonl --report

Tokens are the backend's; sound is made of them by the torch backend, whose samples differ from
MLX's by less than can be heard (benchmarks/mlx_equality.py), in a tenth of the time.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from benchmarks.judged_ways import Way, run
from nightingale import Nightingale
from nightingale.core import Plan

WAYS = {"torch fp32": ("torch", "fp32"), "mlx int8": ("mlx", "int8"), "mlx int4": ("mlx", "int4")}


def loaded(backend: str, t3: Any) -> Nightingale:
    """Tokens by this backend, sound by torch."""
    ways: tuple[tuple[str, Any], ...] = (("torch", "fp32"), (backend, t3))
    torch_model, other = (
        Nightingale.load(
            "fledgling", backend=name, decoder="meanflow", plan=Plan(t3=weights), watermark=False
        ).components
        for name, weights in ways
    )
    own = replace(torch_model.loaded, token_engine=other.loaded.token_engine)
    return Nightingale(replace(torch_model, loaded=own))


def load() -> dict[str, Way]:
    def way(tts: Nightingale) -> Way:
        return lambda text, number: tts.say(text, seed=number)

    return {name: way(loaded(*which)) for name, which in WAYS.items()}


if __name__ == "__main__":
    run(__doc__, list(WAYS), load)
