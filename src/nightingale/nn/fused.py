"""What stands between products, in bfloat16: attention, norms.

Compiled code, because torch's own are several times slower, and because the bits of what its
libraries compute depend on the number of threads. Every function takes the library that computes
it, of those that `native.declare_fused` knows; without one, that for processors with AMX. Rows in,
rows out; knows nothing of stages.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from nightingale.errors import LayoutError
from nightingale.nn import native
from nightingale.nn.device import HOST

D_HEADS = (32, 64)
LANES = 16  # numbers of a vector: rows are multiples of it


def has_amx() -> bool:
    """Whether this processor has AMX and the code for them was compiled."""
    return native.amx() is not None


def attend(
    queries: Tensor,
    keys: Sequence[Tensor],
    values: Sequence[Tensor],
    n_heads: int,
    library: ctypes.CDLL | None = None,
) -> Tensor:
    """(B, T, D) and some (B, T', D), one behind the other -> (B, T, D); heads as in D_HEADS.

    All may be parts of wider rows.
    """
    n_rows, n_queries, width = queries.shape
    n_keys, n_threads = sum(part.shape[1] for part in keys), torch.get_num_threads()
    if width % n_heads or width // n_heads not in D_HEADS:
        raise LayoutError(
            f"{n_heads} heads of {width} numbers: compiled attention has {D_HEADS} a head"
        )
    segments = (native.Segment * len(keys))(
        *(
            native.Segment(k.data_ptr(), v.data_ptr(), _apart(k, v), k.shape[1])
            for k, v in zip(keys, values, strict=True)
        )
    )
    for k, v in zip(keys, values, strict=True):
        if k.shape != v.shape or (k.shape[0], k.shape[2]) != (n_rows, width):
            shapes = ", ".join(str(tuple(part.shape)) for part in (queries, k, v))
            raise LayoutError(f"queries, keys and values do not fit: {shapes}")
    out = torch.empty(n_rows, n_queries, width, dtype=torch.bfloat16)
    library = library or amx_library()
    n_bytes = library.nightingale_attend_bytes(n_keys)
    scratch = torch.empty(n_threads * n_bytes, dtype=torch.uint8)
    places = torch.empty(2 * n_rows * n_keys, dtype=torch.int64)
    library.nightingale_attend(
        queries.data_ptr(), _apart(queries), segments, len(keys), n_rows, n_heads,
        width // n_heads, n_queries, n_keys, out.data_ptr(), scratch.data_ptr(),
        places.data_ptr(), n_threads,
    )  # fmt: skip
    return out


def add_norm(
    x: Tensor, y: Tensor | None, norm: nn.LayerNorm, library: ctypes.CDLL | None = None
) -> Tensor:
    """x, fp32, grows by y, bfloat16, in place; returns its norm, bfloat16."""
    out = torch.empty_like(x, dtype=torch.bfloat16)
    (library or amx_library()).nightingale_add_norm(
        native.address(x, torch.float32), _like(x, y, torch.bfloat16), describe_norm(norm, x),
        _n_rows(x), out.data_ptr(), torch.get_num_threads(),
    )  # fmt: skip
    return out


def norm_mish(
    h: Tensor,
    norm: nn.LayerNorm,
    shift: Tensor | None = None,
    library: ctypes.CDLL | None = None,
) -> Tensor:
    """mish(norm(h)), each row plus `shift`, fp32 (D,); bfloat16 in and out."""
    out = torch.empty_like(h)
    (library or amx_library()).nightingale_norm_mish(
        native.address(h, torch.bfloat16), describe_norm(norm, h),
        _like(norm.weight, shift, torch.float32), None, _n_rows(h), out.data_ptr(), None,
        torch.get_num_threads(),
    )  # fmt: skip
    return out


def norm_mish_residual(
    h: Tensor, norm: nn.LayerNorm, residual: Tensor, library: ctypes.CDLL | None = None
) -> Tensor:
    """mish(norm(h)) + residual; bfloat16 in, fp32 out."""
    out = torch.empty_like(h, dtype=torch.float32)
    (library or amx_library()).nightingale_norm_mish(
        native.address(h, torch.bfloat16), describe_norm(norm, h), None,
        _like(h, residual, torch.bfloat16), _n_rows(h), None, out.data_ptr(),
        torch.get_num_threads(),
    )  # fmt: skip
    return out


def _apart(*tensors: Tensor) -> int:
    """Numbers from one row to the next; rows of a batch must follow each other."""
    strides = {_stride(x) for x in tensors}
    if len(strides) > 1:
        raise LayoutError(f"keys and values must lie alike, not {strides} numbers apart")
    return strides.pop()


def _stride(x: Tensor) -> int:
    n_rows, n, _ = x.shape
    is_dense = x.stride(2) == 1 and (n_rows == 1 or x.stride(0) == n * x.stride(1))
    if not is_dense or x.dtype != torch.bfloat16 or x.device != HOST:
        raise LayoutError(
            "compiled attention needs contiguous rows of bfloat16 on the CPU, not "
            f"{x.dtype} on {x.device} with strides {x.stride()}"
        )
    return x.stride(1)


def describe_norm(norm: nn.LayerNorm, x: Tensor) -> native.Norm:
    """A norm for the rows of x."""
    width = norm.weight.numel()
    if x.shape[-1] != width or width % LANES:
        raise LayoutError(f"a norm of {width} numbers was given rows of {x.shape[-1]}")
    weight, bias = (native.address(part, torch.float32) for part in (norm.weight, norm.bias))
    return native.Norm(weight, bias, width, norm.eps)


def _like(x: Tensor, y: Tensor | None, dtype: torch.dtype) -> int | None:
    """Where y is, which must be as large as x."""
    if y is not None and y.numel() != x.numel():
        raise LayoutError(f"{tuple(y.shape)} cannot be added to {tuple(x.shape)}")
    return native.address(y, dtype)


def _n_rows(x: Tensor) -> int:
    return x.numel() // x.shape[-1]


def amx_library() -> ctypes.CDLL:
    """An error where there is none."""
    library = native.amx()
    if library is None:
        raise LayoutError("this processor has no AMX, or its code was not compiled")
    return library
