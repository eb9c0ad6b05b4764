"""How many more tokens eight requests could have than one, by this processor's own limits.

    python benchmarks/int8_limit.py [--threads 2]

T3 of Multilingual with packed weights reads each weight once a step and multiplies it once for each
row; a request has two rows, for guidance. Measured: how fast memory is read, and how fast int8
products are added up out of registers, by each sequence of instructions that this processor has.
No kernel of int8 products can be faster than the slower of both. A second bound adds what T3's own
format asks of any kernel: scales for every 64 weights, so that each vector of sums becomes floats
and is scaled. Prints a line of JSON; the best of some tries counts.
"""

from __future__ import annotations

import argparse
import ctypes
import itertools
import json
import subprocess
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

N_WEIGHTS = 503e6  # of the layers of T3
ROWS = 2  # of one request
N_TRIES = 9
PLAIN = ("vnni", "bytes_of_7_bits", "signed_bytes", "words")  # sums of whole numbers
SCALED = ("scaled", "scaled_words")  # and every four of them scaled
SOURCE = r"""
#include <immintrin.h>
#include <stdint.h>
#include <time.h>
static double now(void) { struct timespec t; clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec; }
#ifdef __AVX512BW__
#define V(name) _mm512_##name
#define VECTOR __m512i
#define FLOATS __m512
#define ZERO _mm512_setzero_si512()
#define LOAD _mm512_load_si512
#define XOR _mm512_xor_si512
#define WIDTH 64
#else
#define V(name) _mm256_##name
#define VECTOR __m256i
#define FLOATS __m256
#define ZERO _mm256_setzero_si256()
#define LOAD _mm256_load_si256
#define XOR _mm256_xor_si256
#define WIDTH 32
#endif

#define RATE(LANES, name, type, zero, step)                                            \
  double name(long n) {                                                           \
    VECTOR x = V(set1_epi8)(3), w = V(set1_epi8)(1), one = V(set1_epi16)(1);      \
    FLOATS scale = V(set1_ps)(2);                                                 \
    type a[LANES];                                                                \
    (void)one, (void)scale;                                                       \
    for (int i = 0; i < LANES; i++) a[i] = zero;                                  \
    double begun = now();                                                         \
    for (long k = 0; k < n; k++)                                                  \
      for (int i = 0; i < LANES; i++) {                                           \
        __asm__ volatile("" : "+v"(w));                                           \
        step;                                                                     \
      }                                                                           \
    for (int i = 0; i < LANES; i++) __asm__ volatile("" : : "v"(a[i]));           \
    return (double)WIDTH * LANES * n / (now() - begun);                           \
  }
#define FOURS V(madd_epi16)(V(maddubs_epi16)(x, w), one)
#define PAIRS V(madd_epi16)(x, w)
RATE(6, bytes_of_7_bits, VECTOR, ZERO, a[i] = V(add_epi32)(a[i], FOURS))
// Twice as many instructions for as many products: two vectors of 16-bit numbers are one of bytes.
RATE(6, words, VECTOR, ZERO, a[i] = V(add_epi32)(a[i], PAIRS); __asm__ volatile("" : "+v"(w));
     a[i] = V(add_epi32)(a[i], PAIRS))
RATE(6, scaled_words, FLOATS, V(setzero_ps)(), VECTOR s = PAIRS; __asm__ volatile("" : "+v"(w));
     a[i] = V(fmadd_ps)(V(cvtepi32_ps)(V(add_epi32)(s, PAIRS)), scale, a[i]))
#ifdef __AVX512VNNI__
RATE(6, vnni, VECTOR, ZERO, a[i] = V(dpbusd_epi32)(a[i], x, w))
RATE(6, scaled, FLOATS, V(setzero_ps)(),
     a[i] = V(fmadd_ps)(V(cvtepi32_ps)(V(dpbusd_epi32)(x, x, w)), scale, a[i]))
#else
RATE(6, scaled, FLOATS, V(setzero_ps)(), a[i] = V(fmadd_ps)(V(cvtepi32_ps)(FOURS), scale, a[i]))
#endif
#ifndef __AVX512BW__
RATE(6, signed_bytes, VECTOR, ZERO, a[i] = V(add_epi32)(a[i],
     V(madd_epi16)(V(maddubs_epi16)(x, V(sign_epi8)(x, w)), one)))
#endif
// As many bytes of fp32 are a quarter of the products.
RATE(8, fp32, FLOATS, V(setzero_ps)(), a[i] = V(fmadd_ps)((FLOATS)w, scale, a[i]))
double bytes(const char *p, long n) {
    VECTOR s = ZERO;
    double begun = now();
    for (long k = 0; k < n; k += WIDTH) s = XOR(s, LOAD((const void *)(p + k)));
    __asm__ volatile("" : : "v"(s));
    return n / (now() - begun);
}
"""


def compiled(folder: Path, flags: str) -> ctypes.CDLL:
    (folder / "limit.c").write_text(SOURCE)
    wide = ["-march=x86-64-v4"] if "avx512bw" in flags else ["-march=x86-64-v3"]
    vnni = ["-mavx512vnni"] if "avx512_vnni" in flags else []
    command = ["cc", "-O3", *wide, *vnni, "-fPIC", "-shared", "limit.c", "-o", "limit.so"]
    subprocess.run(command, cwd=folder, check=True)
    return ctypes.CDLL(f"{folder}/limit.so")


class Rates:
    """What all threads do together, a nanosecond."""

    def __init__(self, library: ctypes.CDLL, n_threads: int) -> None:
        self._library, self._n_threads = library, n_threads
        self._pool = ThreadPoolExecutor(n_threads)

    def products(self, name: str) -> float:
        """By one of the sequences; 0 if this processor lacks it."""
        function = getattr(self._library, name, None)
        if function is None:
            return 0.0
        function.restype, function.argtypes = ctypes.c_double, [ctypes.c_long]
        return self._best(lambda _: function(2_000_000))

    def bytes(self) -> float:
        function = self._library.bytes
        function.restype, function.argtypes = ctypes.c_double, [ctypes.c_void_p, ctypes.c_long]
        size = 2**28
        memory = [ctypes.create_string_buffer(size + 64) for _ in range(self._n_threads)]
        for block in memory:
            ctypes.memset(block, 1, size + 64)
        starts = [(ctypes.addressof(block) + 63) // 64 * 64 for block in memory]
        return self._best(lambda thread: function(starts[thread], size))

    def _best(self, rate: Callable[[int], float]) -> float:
        tries = (sum(self._pool.map(rate, range(self._n_threads))) for _ in range(N_TRIES))
        return max(tries) / 1e9


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--threads", type=int, default=2)
    n_threads = parser.parse_args().threads
    with tempfile.TemporaryDirectory() as folder:
        library = compiled(Path(folder), Path("/proc/cpuinfo").read_text())
        rates = Rates(library, n_threads)
        products = {name: rates.products(name) for name in (*PLAIN, *SCALED)}
        bandwidth, fp32 = rates.bytes(), rates.products("fp32") / 4
    facts: dict[str, object] = {
        "products_per_ns": {name: round(rate, 1) for name, rate in products.items() if rate},
        "fp32_products_per_ns": round(fp32, 1),
        "bytes_per_ns": round(bandwidth, 1),
    }
    bounds = {
        "": max(products[name] for name in PLAIN),
        "_scaled": max(products[name] for name in SCALED),
    }
    for bits, (bound, rate) in itertools.product((8, 4), bounds.items()):
        read_ms, multiply_ms = (
            1e-6 * N_WEIGHTS * bits / 8 / bandwidth,
            1e-6 * ROWS * N_WEIGHTS / rate,
        )
        one, eight = (max(read_ms, n * multiply_ms) for n in (1, 8))
        facts[f"int{bits}{bound}"] = {
            "step_ms_1": round(one),
            "step_ms_8": round(eight),
            "largest_ratio": round(8 * one / eight, 2),
        }
    print(json.dumps({"proof": "int8_limit", "threads": n_threads, **facts}))


if __name__ == "__main__":
    main()
