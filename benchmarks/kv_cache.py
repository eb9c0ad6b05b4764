"""T3's keys and values in 8 bits against bfloat16: memory, speed of attention, tokens.

    python -m benchmarks.kv_cache speed [--threads 2]
    python -m benchmarks.kv_cache tokens [--sentences 20]
    python -m benchmarks.kv_cache words --rows rows.jsonl --sentences 200    # by the judges

A trial, not a plan: `speed` compiles attention as T3's packed layers have it and the same with
bytes and a scale for each key and value of a head, for one step of requests of Multilingual's size
that have read 350 positions (10 s of speech), and times both in turns. `tokens` and `words` let the
bundled model's T3 in fp32 round what it remembers to either format. 8 bits would stay if twice
as many requests fitted and neither tokens nor words changed beyond seed variance.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from itertools import takewhile
from pathlib import Path

import torch
from torch import Tensor

from benchmarks.judged_ways import Way, run
from nightingale import Nightingale
from nightingale.audio.clip import Audio
from nightingale.backends.torch.t3.cache import KVCache
from nightingale.core import Plan
from nightingale.measure import texts

N_LAYERS, N_HEADS, N_ROWS, WIDTH = 30, 16, 2, 64  # Multilingual; two rows for guidance
N_POSITIONS = 350  # 34 of the voice, some 60 of text, 250 tokens of speech
N_ROUNDS = 5
REQUESTS = (1, 8, 32)
BYTES = {"bf16": 2 * WIDTH, "int8": WIDTH + 2}  # of a key of one head: the scale has two bytes
SOURCE = r"""
#include <math.h>
#include <stdint.h>
#include <string.h>
#define WIDTH 64
#define LANES 8
static inline float wide(uint16_t x) {
  uint32_t bits = (uint32_t)x << 16;
  float value;
  memcpy(&value, &bits, 4);
  return value;
}
#ifdef INT8
typedef int8_t Kept;
#define VALUE(x) (float)(x)
#define SCALE(x) wide(x)
#else
typedef uint16_t Kept;
#define VALUE(x) wide(x)
#define SCALE(x) 1.0f
#endif
static void attend_one(const float *query, const Kept *keys, const Kept *values,
                       const uint16_t *scales, int n, float *scores, float *out) {
  float most = -INFINITY, total = 0;
  for (int j = 0; j < n; j++) {
    float lane[LANES] = {0}, sum = 0;
    for (int i = 0; i < WIDTH; i += LANES)
      for (int l = 0; l < LANES; l++) lane[l] += query[i + l] * VALUE(keys[j * WIDTH + i + l]);
    for (int l = 0; l < LANES; l++) sum += lane[l];
    scores[j] = sum * SCALE(scales[j]);
    most = fmaxf(most, scores[j]);
  }
  for (int j = 0; j < n; j++) total += scores[j] = expf(scores[j] - most);
  float sums[WIDTH] = {0};
  for (int j = 0; j < n; j++) {
    float weight = scores[j] / total * SCALE(scales[j]);
    for (int i = 0; i < WIDTH; i++) sums[i] += weight * VALUE(values[j * WIDTH + i]);
  }
  memcpy(out, sums, sizeof sums);
}
void attend(const float *query, const Kept *keys, const Kept *values, const uint16_t *scales,
            long n_units, int n, int n_threads, float *out) {
#pragma omp parallel for num_threads(n_threads)
  for (long u = 0; u < n_units; u++) {
    float scores[n];
    attend_one(query + u * WIDTH, keys + u * n * WIDTH, values + u * n * WIDTH, scales + u * n, n,
               scores, out + u * WIDTH);
  }
}
"""


def quantized(x: Tensor) -> tuple[Tensor, Tensor]:
    """Bytes, and a scale in bfloat16 for the last dimension."""
    scale = (x.abs().amax(-1, keepdim=True) / 127).clamp(min=1e-20).bfloat16()
    return (x / scale.float()).round().clamp(-127, 127).to(torch.int8), scale


def rounded(x: Tensor, form: str) -> Tensor:
    """What is left of keys or values that were kept in this form."""
    if form == "int8":
        whole, scale = quantized(x)
        return whole.float() * scale.float()
    return x.bfloat16().float() if form == "bf16" else x


@contextmanager
def remembered(form: str) -> Iterator[None]:
    """Let T3 keep its keys and values in this form."""
    append = KVCache.append

    def rounding(self: KVCache, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        return append(self, layer, rounded(keys, form), rounded(values, form))

    KVCache.append = rounding  # type: ignore[method-assign]
    try:
        yield
    finally:
        KVCache.append = append  # type: ignore[method-assign]


@cache
def compiled(form: str) -> ctypes.CDLL:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "kv.c").write_text(SOURCE)
        command = f"cc -O3 -march=native -ffast-math -fopenmp -fPIC -shared -D{form.upper()}"
        command += " kv.c -o kv.so -lm"
        subprocess.run(command.split(), cwd=folder, check=True)
        return ctypes.CDLL(f"{folder}/kv.so")


class Attention:
    """One step's attention of some requests, in either form, over the same keys and values."""

    def __init__(self, n_requests: int, n_threads: int) -> None:
        self._libraries, self._n_threads = {form: compiled(form) for form in BYTES}, n_threads
        self.n_units = n_requests * N_ROWS * N_HEADS * N_LAYERS
        generator = torch.Generator().manual_seed(0)
        shape = (self.n_units, N_POSITIONS, WIDTH)
        one = torch.randn((N_HEADS, N_POSITIONS, WIDTH), generator=generator)
        wide = one.repeat(self.n_units // N_HEADS, 1, 1).view(shape)
        whole, scales = quantized(one)
        self._scales = scales.repeat(self.n_units // N_HEADS, 1, 1).contiguous()
        self._query = torch.randn((self.n_units, WIDTH), generator=generator) / 8
        self._out = torch.empty_like(self._query)
        self._kept = {
            "bf16": [wide.bfloat16(), wide.bfloat16()],
            "int8": [whole.repeat(self.n_units // N_HEADS, 1, 1) for _ in range(2)],
        }

    def __call__(self, form: str) -> Tensor:
        function = self._libraries[form].attend
        function.argtypes = [ctypes.c_void_p] * 4 + [ctypes.c_long] + [ctypes.c_int] * 2
        function.argtypes += [ctypes.c_void_p]
        arrays = [self._query, *self._kept[form], self._scales]
        addresses = [array.data_ptr() for array in arrays]
        function(*addresses, self.n_units, N_POSITIONS, self._n_threads, self._out.data_ptr())
        return self._out


def speed(n_threads: int) -> None:
    found = []
    for n_requests in REQUESTS:
        attention = Attention(n_requests, n_threads)
        results = {form: attention(form).clone() for form in BYTES}
        error = (results["bf16"] - results["int8"]).abs().max() / results["bf16"].abs().max()
        assert error < 0.02, f"the two differ by {error}"
        times: dict[str, list[float]] = {form: [] for form in BYTES}
        for _ in range(N_ROUNDS):
            for form, taken in times.items():
                begun = time.perf_counter()
                attention(form)
                taken.append(time.perf_counter() - begun)
        ms = {form: 1e3 * statistics.median(taken) for form, taken in times.items()}
        mb = {form: 2e-6 * attention.n_units * N_POSITIONS * n for form, n in BYTES.items()}
        found.append(
            {
                "requests": n_requests,
                "mb": {form: round(size) for form, size in mb.items()},
                "step_ms": {form: round(value, 2) for form, value in ms.items()},
                "faster": round(ms["bf16"] / ms["int8"], 2),
            }
        )
    fit = round(BYTES["bf16"] / BYTES["int8"], 2)
    print(json.dumps({"proof": "kv_speed", "threads": n_threads, "fit": fit, "results": found}))


def tokens(n_sentences: int) -> None:
    """Tokens before the first that differs from fp32's, in either form."""
    tts = Nightingale.load("fledgling", plan=Plan(), decoder="meanflow", watermark=False)
    agreed: dict[str, list[int]] = {form: [] for form in BYTES}
    n_all = 0
    for seed, text in enumerate(texts.read("held_out", n_sentences)):
        wanted = tts.say(text, seed=seed).tokens
        n_all += len(wanted)
        for form, counts in agreed.items():
            with remembered(form):
                pairs = zip(tts.say(text, seed=seed).tokens, wanted, strict=False)
            counts.append(len(list(takewhile(lambda pair: pair[0] == pair[1], pairs))))
    facts = {
        form: {"first_other_median": statistics.median(counts), "share": sum(counts) / n_all}
        for form, counts in agreed.items()
    }
    print(json.dumps({"proof": "kv_tokens", "sentences": n_sentences, "tokens": n_all, **facts}))


def words() -> dict[str, Way]:
    tts = Nightingale.load("fledgling", plan=Plan(), watermark=False)

    def way(form: str, first_seed: int) -> Way:
        def say(text: str, number: int) -> Audio:
            with remembered(form):
                return tts.say(text, seed=first_seed + number)

        return say

    return {name: way(*which) for name, which in WAYS.items()}


# The names of ways that benchmarks/int8_quality.py has as well: rows of both may share a file.
WAYS = {
    "fp32": ("fp32", 0),
    "keys and values in bf16": ("bf16", 0),
    "keys and values in int8": ("int8", 0),
    "fp32, seeds from 1000": ("fp32", 1000),
    "fp32, seeds from 2000": ("fp32", 2000),
}


def main() -> None:
    what = sys.argv.pop(1) if len(sys.argv) > 1 else "--help"
    if what == "words":
        run(__doc__, list(WAYS), words)
        return
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("speed", "tokens", "words"))
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--sentences", type=int, default=20)
    given = parser.parse_args([what, *sys.argv[1:]])
    if what == "speed":
        speed(given.threads)
    else:
        tokens(given.sentences)


if __name__ == "__main__":
    main()
