"""Memory safety of the compiled code: sanitizers over drawn shapes, and refused arguments."""

from __future__ import annotations

import ctypes
import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from nightingale.backends.torch.t3.cache import KVCache
from nightingale.backends.torch.t3.model import T3, T3Config
from nightingale.backends.torch.t3.quantized import (
    QuantizedLinear,
    QuantizedStack,
    empty_quantized,
    quantize,
)
from nightingale.errors import LayoutError
from nightingale.nn import fused, native
from nightingale.nn.packing import GROUP
from tests.emulation import library as emulation
from tests.nn.sanitized import IS_X86
from tests.tiny import TINY

ROOT = Path(__file__).parents[2]


def sanitize(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(ROOT / "scripts/sanitize"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)


@pytest.mark.slow
def test_sanitizers_report_planted_faults_and_nothing_over_drawn_shapes() -> None:
    """A sample: scripts/sanitize draws 2,000 shapes for all libraries, most of whose time goes to
    the compiler. Here those with the least code in common: AVX2, AMX, and convolutions; compiled
    as they are written, in a fifth of the time. One process: torch loads slowly under sanitizers.
    """
    libraries = ("stack_avx2", "stack_amx", "amx", "int8_avx2") if IS_X86 else ("stack",)
    quick = ("--shapes", "16", "--optimize", "0", "--libraries", *libraries)
    done = sanitize(*quick, "--plant", "overflow", "shift")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["shapes"] >= 16
    assert all(found[library] for library in libraries)
    assert found["planted"] == {"overflow": 23, "shift": 24}
    assert "AddressSanitizer: heap-buffer-overflow" in done.stderr
    assert "runtime error: shift" in done.stderr


@pytest.mark.parametrize(
    "sizes",
    [
        {"d_model": 128, "n_heads": 4},  # heads of 32: freed memory was corrupted
        {"d_model": 96, "n_heads": 1},
        {"d_model": 128, "n_heads": 2, "d_ffn": 200},
        {"d_model": 64 * 512, "n_heads": 512},
        {"n_heads": 0},
    ],
)
def test_sizes_that_compiled_code_cannot_read_are_refused(sizes: dict[str, int]) -> None:
    config = replace(T3Config("english", 2, 128, 2, 256, 300, 100, 150), **sizes)  # type: ignore[arg-type]
    with pytest.raises(LayoutError, match="cannot be packed"):
        QuantizedStack(config, 8, 100)


def test_heads_of_another_width_are_refused_when_packing_and_when_loading() -> None:
    config = T3Config("english", 1, 128, 4, 256, 300, 100, 150)
    for pack in (quantize, empty_quantized):
        with pytest.raises(LayoutError, match="d_model must be 64"):
            pack(T3(config), 8)


def test_positions_and_caches_that_do_not_fit_are_refused() -> None:
    config = TINY["english"]
    stack = QuantizedStack(config, 8, 10)
    with pytest.raises(LayoutError, match="11 positions"):
        stack(torch.zeros(1, 11, config.d_model))
    with pytest.raises(LayoutError, match="2 positions of 64 numbers"):
        stack(torch.zeros(1, 2, 64))
    other = (2, config.n_heads, 10, GROUP)
    cache = KVCache.empty(config.n_layers, other, like=torch.zeros(0, dtype=torch.bfloat16))
    with pytest.raises(LayoutError, match="a cache of"):
        stack(torch.zeros(1, 2, config.d_model), cache)


def test_tensors_that_are_elsewhere_or_of_another_kind_are_refused() -> None:
    with pytest.raises(LayoutError, match="on the CPU, not on meta"):
        native.address(torch.empty(4, device="meta"))
    with pytest.raises(LayoutError, match="contiguous"):
        native.address(torch.empty(4, 4).T)
    with pytest.raises(LayoutError, match="float32 here"):
        native.address(torch.empty(4, dtype=torch.float64), torch.float32)
    layer = QuantizedLinear.of(torch.randn(8, 64), None, 8).to("meta")
    with pytest.raises(LayoutError, match="not on meta"):
        layer(torch.zeros(1, 64))


def test_rows_that_amx_code_cannot_read_are_refused() -> None:
    x, norm = torch.zeros(1, 4, 96, dtype=torch.bfloat16), nn.LayerNorm(96)
    with pytest.raises(LayoutError, match="heads of 96"):
        fused.attend(x, [x], [x], 2)
    with pytest.raises(LayoutError, match="do not fit"):
        fused.attend(x, [x], [x[:, :3]], 3)
    with pytest.raises(LayoutError, match="bfloat16 on the CPU"):
        fused.attend(x, [x.float()], [x.float()], 3)
    with pytest.raises(LayoutError, match="a norm of 96"):
        fused.describe_norm(norm, torch.zeros(2, 64))


@pytest.mark.skipif(emulation.compiler() is None, reason="needs a C compiler for Linux")
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("int32_t n_out, n_in, n_bits;", "int32_t n_bits, n_out, n_in;"),
        ("int32_t capacity, length;", "int64_t capacity, length;"),
        ("#define ABI_VERSION 1", "#define ABI_VERSION 2"),
    ],
)
def test_a_library_of_other_structures_is_refused(tmp_path: Path, before: str, after: str) -> None:
    n_changed = 0
    for file in native.FOLDER.glob("*.[ch]"):
        source = file.read_text(encoding="utf-8")
        n_changed += before in source
        (tmp_path / file.name).write_text(source.replace(before, after), encoding="utf-8")
    assert n_changed == 1
    quickly = tuple(flag for flag in emulation.FLAGS if flag != "-O2")  # only its layout is asked
    library = ctypes.CDLL(str(emulation.build(quickly, ("stack.c",), tmp_path)))
    with pytest.raises(LayoutError, match="other sources than this package"):
        native.declare_stack(library)


def test_a_library_without_a_layout_is_refused() -> None:
    with pytest.raises(LayoutError, match="reinstall"):
        native.declare_stack(ctypes.CDLL(None))
