"""The ctypes binding of the C files beside this one, which are compiled when the package is built.

Structures here mirror those in C, field by field; a library that was compiled with other ones is
refused. Where there was no compiler, or where the processor lacks something, there is no library:
callers ask, and go the slower way. C checks nothing, so what it is given is checked here
(`address`) and by the callers (sizes).
"""

from __future__ import annotations

import ctypes
import functools
import platform
from collections.abc import Sequence
from ctypes import POINTER, Structure, c_float, c_int32, c_int64, c_void_p
from pathlib import Path
from typing import TYPE_CHECKING

from nightingale.core import CPU
from nightingale.errors import LayoutError

if TYPE_CHECKING:
    import torch

ABI_VERSION = (
    1  # counts changes that sizes do not show, such as another order of arguments; as in abi.h
)
FOLDER = Path(__file__).parent
X86_KINDS = ("stack_amx", "stack_vnni", "stack_avx512", "stack_avx2")  # best first
ARM_KINDS = ("stack_dotprod",)  # NEON with products of bytes
IS_ARM = platform.machine() in ("arm64", "aarch64")
KINDS = (*(ARM_KINDS if IS_ARM else X86_KINDS), "stack")
INT8_KINDS = ("int8_dotprod",) if IS_ARM else ("int8_vnni", "int8_avx2")  # best first
OTHERS = INT8_KINDS if IS_ARM else ("amx", *INT8_KINDS)


class Linear(Structure):
    _fields_ = (
        ("codes", c_void_p),
        ("scales", c_void_p),
        ("bias", c_void_p),
        ("n_out", c_int32),
        ("n_in", c_int32),
        ("n_bits", c_int32),
    )


class Layer(Structure):
    _fields_ = (
        *((name, Linear) for name in ("qkv", "out", "up", "down")),
        *((name, c_void_p) for name in ("norm1", "bias1", "norm2", "bias2")),
    )


class Stack(Structure):
    _fields_ = (
        ("layers", POINTER(Layer)),
        *((name, c_void_p) for name in ("norm", "bias", "cos", "sin")),
        *((name, c_int32) for name in ("n_layers", "width", "n_heads", "d_ffn", "has_gate")),
        ("eps", c_float),
    )


class Quantized(Structure):
    _fields_ = (("blocks", c_void_p), ("scales", c_void_p))


class Workspace(Structure):
    _fields_ = (
        *((name, c_void_p) for name in ("x", "mixed", "scores")),
        ("quantized_x", Quantized),
        ("quantized_ffn", Quantized),
    )


class Cache(Structure):
    _fields_ = (
        ("keys", POINTER(c_void_p)),
        ("values", POINTER(c_void_p)),
        ("capacity", c_int32),
        ("length", c_int32),
    )


class AttentionProbe(Structure):
    _fields_ = (
        ("n", c_int32),
        ("layers", POINTER(c_int32)),
        ("heads", POINTER(c_int32)),
        ("seen", c_void_p),
    )


class Slot(Structure):
    _fields_ = (("cache", Cache), ("probe", AttentionProbe), ("n_rows", c_int32))


class Convolution(Structure):
    _fields_ = (
        ("weights", c_void_p),
        ("bias", c_void_p),
        *((name, c_int32) for name in ("n_in", "n_out", "n_taps", "dilation")),
    )


class Norm(Structure):
    _fields_ = (("weight", c_void_p), ("bias", c_void_p), ("width", c_int32), ("eps", c_float))


class Segment(Structure):
    _fields_ = (
        ("keys", c_void_p),
        ("values", c_void_p),
        ("stride", c_int64),
        ("n", c_int32),
    )


class ConvolutionArgs(Structure):
    _fields_ = (
        ("x", c_void_p),
        ("stream", c_void_p),
        ("norm", POINTER(Norm)),
        *((name, c_void_p) for name in ("residual", "out_fp32", "out_bf16", "scratch")),
        *((name, c_int32) for name in ("n_rows", "n", "gelu")),
    )


@functools.lru_cache(1)
def library() -> ctypes.CDLL | None:
    """stack.c in the form that suits this processor best, or None."""
    return next((found for kind in KINDS if (found := load(kind))), None)


@functools.lru_cache(1)
def amx() -> ctypes.CDLL | None:
    """amx.c and convolve.c, or None where the processor has no AMX."""
    found = _open("amx")
    return found and declare_fused(found)


@functools.lru_cache(1)
def int8() -> ctypes.CDLL | None:
    """int8.c in the form that suits this processor best, or None: what amx.c has, in 8 bits."""
    return next((declare_fused(found) for kind in INT8_KINDS if (found := _open(kind))), None)


def load(kind: str) -> ctypes.CDLL | None:
    """One form of stack.c, if it is there and runs here."""
    found = _open(kind)
    return found and declare_stack(found)


def _open(name: str) -> ctypes.CDLL | None:
    """A compiled file, if it is there and runs here."""
    found = _attempt(name)
    return None if isinstance(found, str) else found


def _attempt(name: str) -> ctypes.CDLL | str:
    """A compiled file that runs here, or why there is none."""
    import torch  # noqa: F401, PLC0415 - first of all: its OpenMP is the one that we call

    file = FOLDER / f"{name}.so"
    if not file.exists():
        return "not compiled"
    try:
        found = ctypes.CDLL(str(file))
    except OSError as error:
        return f"does not load: {error}"
    return found if found.nightingale_runs_here() else "not for this processor"


def states() -> dict[str, str]:
    """Each compiled file and what became of it here, for `doctor`."""
    found = {name: _attempt(name) for name in (*KINDS, *OTHERS)}
    return {name: what if isinstance(what, str) else _how(what) for name, what in found.items()}


def _how(library: ctypes.CDLL) -> str:
    """A library of T3 without OpenMP has one thread."""
    has_openmp = getattr(library, "nightingale_has_openmp", None)
    return "runs" if has_openmp is None or has_openmp() else "runs, without OpenMP, on one thread"


def declare_fused(library: ctypes.CDLL) -> ctypes.CDLL:
    """Types of what amx.c and convolve.c, or int8.c, export."""
    _check_layout(library, "nightingale_convolve_layout", (Convolution, Norm, ConvolutionArgs))
    _check_layout(library, "nightingale_layout", (Norm, Segment))
    library.nightingale_convolve_bytes.argtypes = (POINTER(Convolution), c_int32, c_int32)
    for name in ("attend", "convolve", "pack"):
        getattr(library, f"nightingale_{name}_bytes").restype = c_int64
    library.nightingale_attend.argtypes = (
        c_void_p, c_int64, POINTER(Segment), *(c_int32,) * 6, *(c_void_p,) * 3, c_int32,
    )  # fmt: skip
    library.nightingale_add_norm.argtypes = (
        c_void_p, c_void_p, POINTER(Norm), c_int32, c_void_p, c_int32,
    )  # fmt: skip
    library.nightingale_norm_mish.argtypes = (
        c_void_p, POINTER(Norm), c_void_p, c_void_p, c_int32, c_void_p, c_void_p, c_int32,
    )  # fmt: skip
    library.nightingale_pack.argtypes = (c_void_p, *(c_int32,) * 3, c_void_p, c_int32)
    library.nightingale_convolve.argtypes = (
        POINTER(Convolution),
        POINTER(ConvolutionArgs),
        c_int32,
    )
    library.nightingale_snake.argtypes = (*(c_void_p,) * 3, *(c_int32,) * 4, c_void_p, c_int32)
    for name in ("attend", "add_norm", "norm_mish", "pack", "convolve", "snake"):
        getattr(library, f"nightingale_{name}").restype = None
    return library


def declare_stack(library: ctypes.CDLL) -> ctypes.CDLL:
    """Types of what stack.c exports."""
    structures = (Linear, Layer, Stack, Quantized, Workspace, Cache, AttentionProbe, Slot)
    _check_layout(library, "nightingale_layout", structures)
    library.nightingale_read.argtypes = (
        POINTER(Stack), POINTER(Slot), c_int32, c_int32, POINTER(Workspace), c_int32,
    )  # fmt: skip
    library.nightingale_multiply.argtypes = (
        POINTER(Linear), c_void_p, c_int32, POINTER(Quantized), c_void_p, c_int32,
    )  # fmt: skip
    for function in (library.nightingale_read, library.nightingale_multiply):
        function.restype = None
    return library


def _check_layout(library: ctypes.CDLL, name: str, structures: Sequence[type[Structure]]) -> None:
    """Refuse a library whose structures are not those above: it would read and write anywhere."""
    expected = [ABI_VERSION, len(structures)]
    for structure in structures:
        last = structure._fields_[-1][0]
        expected += [ctypes.sizeof(structure), getattr(structure, last).offset]
    layout = getattr(library, name, None)
    if layout is not None:
        layout.restype = POINTER(c_int32)
    found = layout()[: len(expected)] if layout is not None else None
    if found != expected:
        raise LayoutError(
            f"{library._name} was compiled from other sources than this package (layout {found}, "
            f"expected {expected}); reinstall nightingale-tts"
        )


def address(tensor: torch.Tensor | None, dtype: torch.dtype | None = None) -> int | None:
    """Where the numbers of a tensor are, for C; refused if they are not where C would look."""
    if tensor is None:
        return None
    if tensor.device.type != CPU:
        raise LayoutError(f"compiled code needs a tensor on the CPU, not on {tensor.device}")
    if not tensor.is_contiguous():
        raise LayoutError(f"compiled code needs a contiguous tensor, not strides {tensor.stride()}")
    if dtype is not None and tensor.dtype != dtype:
        raise LayoutError(f"compiled code needs {dtype} here, not {tensor.dtype}")
    return tensor.data_ptr()
