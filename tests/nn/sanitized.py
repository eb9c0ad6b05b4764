"""Compiled code under AddressSanitizer and UBSan, over drawn shapes; `scripts/sanitize` runs it.

    scripts/sanitize --shapes 2000
    scripts/sanitize --plant overflow shift    # each must be reported

The libraries are compiled from the package's sources with both sanitizers: as they are for this
processor, and with emulated AMX and VNNI instructions. Tensors come from the sanitizer's allocator
(it is preloaded), so that a read or write beside one ends the process with a report.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import platform
import sys
from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

import torch
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from torch import nn

from nightingale.backends.torch.t3.attention import Alignment
from nightingale.backends.torch.t3.cache import KVCache
from nightingale.backends.torch.t3.model import T3Config
from nightingale.backends.torch.t3.quantized import QuantizedLinear, QuantizedStack
from nightingale.nn import convolution, fused, native
from nightingale.nn.packing import GROUP, Bits
from tests.emulation import library as emulation

FLAGS = (
    "-g1", "-fopenmp", "-fno-math-errno", "-fPIC", "-shared", "-w", "-fno-omit-frame-pointer",
    "-fsanitize=address,undefined", "-fno-sanitize-recover=undefined",
)  # fmt: skip
IS_X86 = platform.machine() in ("x86_64", "AMD64")
SOURCES: dict[str, tuple[str, ...]] = {"stack": ("stack.c",)}
if IS_X86:
    SOURCES |= {
        "stack_avx2": ("stack.c", "-march=x86-64-v3"),
        "stack_avx512": ("stack.c", "-DEMULATE_BW", *emulation.EMULATION, *emulation.NATIVE),
        "stack_vnni": ("stack.c", "-DEMULATE_VNNI", *emulation.EMULATION, *emulation.NATIVE),
        "stack_amx": ("stack.c", "-DEMULATE_AMX", *emulation.EMULATION, *emulation.NATIVE),
        "amx": ("amx.c", "convolve.c", *emulation.EMULATION, *emulation.NATIVE),
        "int8_avx2": ("int8.c", "-march=x86-64-v3"),
        "int8_vnni": ("int8.c", "-DEMULATE_VNNI", *emulation.EMULATION, *emulation.NATIVE),
    }
PLANTS = {
    "overflow": "int nightingale_plant(char *x, int n) { return x[n]; }",
    "shift": "int nightingale_plant(char *x, int n) { return 1 << (n + x[0]); }",
}


def compiled(kind: str, level: int) -> ctypes.CDLL:
    """One library with sanitizers."""
    flags = (f"-O{level}", *FLAGS)
    library = ctypes.CDLL(str(emulation.build(flags, SOURCES[kind], native.FOLDER)))
    return (native.declare_stack if kind.startswith("stack") else native.declare_fused)(library)


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape)


@st.composite
def stacks(draw: st.DrawFn) -> dict[str, Any]:
    """Sizes of a packed T3 and of what it reads."""
    n_heads = draw(st.integers(1, 3))
    return {
        "config": T3Config(
            draw(st.sampled_from(("english", "nano"))), draw(st.integers(1, 2)), GROUP * n_heads,
            n_heads, GROUP * draw(st.integers(1, 5)), 40, draw(st.integers(1, 70)), 20,
        ),
        "bits": draw(st.sampled_from((4, 8))),
        "n_rows": draw(st.integers(1, 5)),
        "pieces": draw(st.lists(st.integers(1, 70), min_size=1, max_size=4)),
        "n_threads": draw(st.integers(1, 3)),
        "n_watched": draw(st.integers(0, 2)),
        "mates": draw(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 20)), max_size=8)),
    }  # fmt: skip


def run_stack(
    config: T3Config,
    bits: Bits,
    n_rows: int,
    pieces: list[int],
    n_watched: int,
    mates: list[tuple[int, int]],
) -> None:
    """Some pieces, one behind the other; a step with batch mates of other rows and lengths; then
    the last layer of one position."""
    stack = QuantizedStack(config, bits, max(sum(pieces) + 1, 22))
    for module in stack.modules():
        for name, buffer in list(module.named_buffers(recurse=False)):
            if buffer.dtype == torch.uint8:
                setattr(module, name, torch.randint_like(buffer, 256))
            elif name not in ("cos", "sin"):
                setattr(module, name, torch.randn_like(buffer))
    heads = tuple((0, head) for head in range(min(n_watched, config.n_heads)))
    alignment = Alignment(heads, (0, 1)) if heads else None
    slots = []
    for rows, lengths in ((n_rows, pieces), *((rows, [length]) for rows, length in mates)):
        shape = (rows, config.n_heads, lengths[0], GROUP)
        cache = KVCache.empty(config.n_layers, shape, like=torch.empty(0, dtype=torch.bfloat16))
        for n in lengths:
            stack(drawn(rows, n, config.d_model), cache, alignment)
        slots.append((cache, alignment))
    stack.read_slots([drawn(cache.n_rows, 1, config.d_model) for cache, _ in slots], slots)
    head = QuantizedLinear.of(drawn(config.n_speech, config.d_model), None, 8)
    head(drawn(n_rows, config.d_model))


@st.composite
def windows(draw: st.DrawFn) -> dict[str, Any]:
    """Sizes of what the flow and the vocoder give to AMX, or to products in 8 bits."""
    return {
        "n_rows": draw(st.integers(1, 3)),
        "n": draw(st.integers(1, 100)),
        "segments": draw(st.lists(st.integers(1, 90), min_size=1, max_size=3)),
        "n_heads": draw(st.integers(1, 3)),
        "d_head": draw(st.sampled_from(fused.D_HEADS)),
        "n_in": draw(st.integers(1, 100)),
        "n_out": draw(st.integers(1, 100)),
        "n_taps": draw(st.integers(1, 7)),
        "dilation": draw(st.integers(1, 5)),
        "n_threads": draw(st.integers(1, 3)),
    }


def run_window(**sizes: Any) -> None:
    """Every exported function of amx.c and convolve.c, or of int8.c."""
    n_rows, n, width = sizes["n_rows"], sizes["n"], sizes["n_heads"] * sizes["d_head"]
    parts = [drawn(n_rows, length, width).bfloat16() for length in sizes["segments"]]
    fused.attend(drawn(n_rows, n, width).bfloat16(), parts, parts, sizes["n_heads"])
    norm = nn.LayerNorm(width)
    fused.add_norm(drawn(n_rows, n, width), drawn(n_rows, n, width).bfloat16(), norm)
    fused.norm_mish(drawn(n, width).bfloat16(), norm, drawn(width))
    fused.norm_mish_residual(drawn(n, width).bfloat16(), norm, drawn(n, width).bfloat16())
    taps, dilation = sizes["n_taps"], sizes["dilation"]
    layer = convolution.Convolution(
        drawn(sizes["n_out"], sizes["n_in"], taps), drawn(sizes["n_out"]), dilation
    )
    layer(drawn(n_rows, n + layer.reach, layer.n_in).bfloat16(), bf16=n % 2 == 0, gelu=n % 3 == 0)
    linear = convolution.Convolution(drawn(sizes["n_out"], width, 1), None)
    if linear.n_in == width:
        linear(drawn(n_rows, n, width), norm=norm)
    snake = convolution.Snake(drawn(sizes["n_in"]).abs() + 0.1, 1e-9)
    snake(drawn(n, convolution.whole(sizes["n_in"])), layer.reach)


def run_all(n_shapes: int, kinds: Sequence[str], level: int) -> dict[str, int]:
    """So many shapes in all; how many for each library."""
    n_run, n_each = dict.fromkeys(kinds, 0), -(-n_shapes // len(kinds))
    drawing = settings(
        max_examples=n_each, deadline=None, database=None, derandomize=True,
        phases=[Phase.generate], suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    for kind in kinds:
        name, library = "library" if kind.startswith("stack") else "amx", compiled(kind, level)
        sizes = stacks() if kind.startswith("stack") else windows()
        with mock.patch.object(native, name, mock.Mock(return_value=library)):
            drawing(given(sizes)(_runner(kind, n_run)))()
        print(f"{kind}: {n_run[kind]} shapes", file=sys.stderr, flush=True)
    return n_run


def _runner(kind: str, n_run: dict[str, int]) -> Callable[[dict[str, Any]], None]:
    def run(sizes: dict[str, Any]) -> None:
        n_run[kind] += 1
        torch.set_num_threads(sizes.pop("n_threads"))
        (run_stack if kind.startswith("stack") else run_window)(**sizes)

    return run


def planted(which: str) -> int:
    """The exit status of a fork that a sanitizer must end."""
    child = os.fork()
    if not child:
        plant(which)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def plant(which: str) -> None:
    """A fault that a sanitizer must report."""
    source = emulation.KEPT / f"{which}.c"
    emulation.KEPT.mkdir(parents=True, exist_ok=True)
    source.write_text(PLANTS[which])
    library = ctypes.CDLL(str(emulation.build(FLAGS, (str(source),), native.FOLDER)))
    zeros = torch.zeros(64, dtype=torch.uint8)
    library.nightingale_plant(ctypes.c_void_p(zeros.data_ptr()), 64)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--shapes", type=int, default=2000)
    parser.add_argument("--libraries", nargs="+", choices=list(SOURCES), default=list(SOURCES))
    parser.add_argument("--optimize", type=int, default=1, metavar="LEVEL", help="of the compiler")
    parser.add_argument("--plant", nargs="+", choices=sorted(PLANTS), default=[])
    args = parser.parse_args()
    statuses = {which: planted(which) for which in args.plant}
    n_run = run_all(args.shapes, args.libraries, args.optimize) if args.shapes else {}
    result = {"proof": "sanitize", "shapes": sum(n_run.values()), "reports": 0, **n_run}
    print(json.dumps(result | ({"planted": statuses} if statuses else {})))


if __name__ == "__main__":
    with torch.inference_mode():
        main()
