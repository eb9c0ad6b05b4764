"""How long T3 takes to read a text before its first token, or one token, with packed weights.

    python benchmarks/prompt_reading.py [--against OLD.so] [--layers 30] [--threads 2]
    python benchmarks/prompt_reading.py --positions 1 --behind 250 [--against OLD.so]

Multilingual's size with random weights: two rows (guidance) of 94 positions, as a voice and a
sentence have, or of one position behind 250 that were read before: a step. `--against`: stack.c as
compiled from another commit takes turns with the one that is installed, and must give the same
bytes. Medians, in milliseconds of the clock and of the processors. Prints a line of JSON.
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
from nightingale.backends.torch.t3.cache import KVCache
from nightingale.backends.torch.t3.model import CONFIGS, T3
from nightingale.measure.random_model import fill
from nightingale.nn import native
from nightingale.nn.meta_init import meta_init
from nightingale.nn.packing import Bits

N_ROWS = 2


@torch.inference_mode()
def measure(
    bits: Bits, given: argparse.Namespace, libraries: dict[str, ctypes.CDLL]
) -> dict[str, Any]:
    config = replace(CONFIGS["multilingual"], n_layers=given.layers, alignment_heads=())
    with meta_init():
        model = T3(config)
    fill(model, 0)
    stack = quantized.quantize(model.eval().requires_grad_(False), bits).tfmr
    drawn = torch.Generator().manual_seed(0)
    x = torch.randn(N_ROWS, given.positions, config.d_model, generator=drawn)
    shape = (N_ROWS, config.n_heads, given.behind + given.positions, 64)
    cache = KVCache.empty(config.n_layers, shape, like=x.bfloat16())
    for read in (*cache.keys, *cache.values):
        read.copy_(torch.randn(shape, generator=drawn))
    spent: dict[str, list[tuple[float, float]]] = {name: [] for name in libraries}
    made = []
    for _ in range(given.rounds + 1):
        for name, library in libraries.items():
            native.library = lambda library=library: library  # type: ignore[assignment]
            begun = time.perf_counter(), time.process_time()
            cache.length = given.behind
            made.append(stack(x, cache))
            spent[name].append((time.perf_counter() - begun[0], time.process_time() - begun[1]))
    facts: dict[str, Any] = {"bits": bits, "same": all(torch.equal(made[0], m) for m in made)}
    for name, times in spent.items():
        wall, cpu = (
            round(1e3 * statistics.median(clock), 1) for clock in zip(*times[1:], strict=True)
        )
        facts[name] = {"ms": wall, "cpu_ms": cpu}
    return facts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--against", type=Path)
    parser.add_argument("--positions", type=int, default=94)
    parser.add_argument("--behind", type=int, default=0)
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
    results = [measure(bits, given, libraries) for bits in every]
    head = {"proof": "prompt_reading", "threads": given.threads, "layers": given.layers}
    head |= {"positions": given.positions, "behind": given.behind}
    head |= {"kernel": Path(found._name).stem, "rounds": given.rounds}
    print(json.dumps({**head, "results": results}))


if __name__ == "__main__":
    main()
