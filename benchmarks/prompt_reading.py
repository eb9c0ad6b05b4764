"""How long T3 takes to read a text before its first token, with packed weights.

    python benchmarks/prompt_reading.py [--against OLD.so] [--layers 30] [--threads 2]

Multilingual's size with random weights: two rows (guidance) of 94 positions, as a voice and a
sentence have. `--against`: stack.c as compiled from another commit takes turns with the one that
is installed, and must give the same bytes. Medians, in milliseconds of the clock and of the
processors. Prints a line of JSON.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import statistics
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from nightingale.backends.torch.t3 import quantized
from nightingale.backends.torch.t3.model import CONFIGS, T3
from nightingale.measure.random_model import fill
from nightingale.nn import native
from nightingale.nn.meta_init import meta_init
from nightingale.nn.packing import Bits

N_ROWS, N_POSITIONS = 2, 94


@torch.inference_mode()
def measure(
    bits: Bits, n_layers: int, libraries: dict[str, ctypes.CDLL], n_rounds: int
) -> dict[str, Any]:
    config = replace(CONFIGS["multilingual"], n_layers=n_layers, alignment_heads=())
    with meta_init():
        model = T3(config)
    fill(model, 0)
    stack = quantized.quantize(model.eval().requires_grad_(False), bits).tfmr
    x = torch.randn(N_ROWS, N_POSITIONS, config.d_model, generator=torch.Generator().manual_seed(0))
    spent: dict[str, list[tuple[float, float]]] = {name: [] for name in libraries}
    made = []
    for _ in range(n_rounds + 1):
        for name, library in libraries.items():
            native.library = lambda library=library: library  # type: ignore[assignment]
            begun = time.perf_counter(), time.process_time()
            made.append(stack(x))
            spent[name].append((time.perf_counter() - begun[0], time.process_time() - begun[1]))
    facts: dict[str, Any] = {"bits": bits, "same": all(torch.equal(made[0], m) for m in made)}
    for name, times in spent.items():
        wall, cpu = (
            round(1e3 * statistics.median(clock)) for clock in zip(*times[1:], strict=True)
        )
        facts[name] = {"ms": wall, "cpu_ms": cpu}
    return facts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--against", type=Path)
    parser.add_argument("--layers", type=int, default=30)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    found = native.library()
    if found is None:
        raise SystemExit("no compiled code runs here")
    libraries = {"installed": found}
    if given.against:
        libraries["against"] = native.declare_stack(ctypes.CDLL(str(given.against)))
    every: tuple[Bits, ...] = (8, 4)
    results = [measure(bits, given.layers, libraries, given.rounds) for bits in every]
    head = {"proof": "prompt_reading", "threads": given.threads, "layers": given.layers}
    head |= {"kernel": Path(found._name).stem, "rounds": given.rounds}
    print(json.dumps({**head, "results": results}))


if __name__ == "__main__":
    main()
