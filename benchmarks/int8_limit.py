"""How many more tokens eight requests could have than one, by this processor's own limits.

    python benchmarks/int8_limit.py

T3 of Multilingual with packed weights reads each weight once a step and multiplies it once for each
row; a request has two rows, for guidance. Measured on one thread: how fast memory is read, and how
fast int8 products are added up out of registers, by AVX-512BW (three instructions for 64 products)
and, where the processor has it, by VNNI (one). No kernel of int8 products can be faster than the
slower of both. Prints a line of JSON; the best of some tries counts.
"""

from __future__ import annotations

import ctypes
import json
import subprocess
import tempfile
from pathlib import Path

N_WEIGHTS = 503e6  # of the layers of T3
ROWS = 2  # of one request
SOURCE = r"""
#include <immintrin.h>
#include <stdint.h>
#include <time.h>
static double now(void) { struct timespec t; clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return t.tv_sec + 1e-9 * t.tv_nsec; }
#define LANES 8
double products(long n) {
    __m512i a[LANES], x = _mm512_set1_epi8(3), w = _mm512_set1_epi8(1), one = _mm512_set1_epi16(1);
    for (int i = 0; i < LANES; i++) a[i] = _mm512_setzero_si512();
    double begun = now();
    for (long k = 0; k < n; k++) {
        for (int i = 0; i < LANES; i++) {
            __asm__ volatile("" : "+v"(w));
#ifdef __AVX512VNNI__
            a[i] = _mm512_dpbusd_epi32(a[i], x, w);
#else
            a[i] = _mm512_add_epi32(a[i], _mm512_madd_epi16(_mm512_maddubs_epi16(x, w), one));
#endif
        }
    }
    for (int i = 0; i < LANES; i++) __asm__ volatile("" : : "v"(a[i]));
    return 64.0 * LANES * n / (now() - begun);
}
double bytes(const char *p, long n) {
    __m512i s = _mm512_setzero_si512();
    double begun = now();
    for (long k = 0; k < n; k += 64) s = _mm512_xor_si512(s, _mm512_load_si512(p + k));
    __asm__ volatile("" : : "v"(s));
    return n / (now() - begun);
}
"""


def main() -> None:
    flags = Path("/proc/cpuinfo").read_text()
    vnni = ["-mavx512vnni"] if "avx512_vnni" in flags else []
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "limit.c").write_text(SOURCE)
        command = [
            "cc",
            "-O3",
            "-march=x86-64-v4",
            *vnni,
            "-fPIC",
            "-shared",
            "limit.c",
            "-o",
            "l.so",
        ]
        subprocess.run(command, cwd=folder, check=True)
        library = ctypes.CDLL(f"{folder}/l.so")
    library.products.restype = library.bytes.restype = ctypes.c_double
    library.products.argtypes = [ctypes.c_long]
    library.bytes.argtypes = [ctypes.c_void_p, ctypes.c_long]
    size = 2**28
    memory = ctypes.create_string_buffer(size + 64)
    ctypes.memset(memory, 1, size + 64)
    start = (ctypes.addressof(memory) + 63) // 64 * 64
    rate = max(library.products(2_000_000) for _ in range(9))
    bandwidth = max(library.bytes(start, size) for _ in range(9))
    facts = {
        "instructions": "VNNI" if vnni else "AVX-512BW",
        "products_per_ns": round(rate / 1e9, 1),
        "bytes_per_ns": round(bandwidth / 1e9, 1),
    }
    for name, n_bits in (("int8", 8), ("int4", 4)):
        read_s, multiply_s = N_WEIGHTS * n_bits / 8 / bandwidth, ROWS * N_WEIGHTS / rate
        one, eight = (max(read_s, n * multiply_s) for n in (1, 8))
        facts[f"{name}_step_ms_1"], facts[f"{name}_step_ms_8"] = (
            round(1e3 * one),
            round(1e3 * eight),
        )
        facts[f"{name}_largest_ratio"] = round(8 * one / eight, 2)
    print(json.dumps({"proof": "int8_limit", "threads": 1, **facts}))


if __name__ == "__main__":
    main()
