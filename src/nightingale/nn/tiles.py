"""What stands between products, in bfloat16 for processors with matrix tiles: attention, norms.

Compiled code, because torch's own are several times slower there, and because the bits of what its
libraries compute depend on the number of threads. Rows in, rows out; knows nothing of stages.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from nightingale.nn import native

D_HEADS = (32, 64)


def are_here() -> bool:
    """Whether this processor has tiles and the code for them was compiled."""
    return native.tiles() is not None


def attend(
    queries: Tensor, keys: Sequence[Tensor], values: Sequence[Tensor], n_heads: int
) -> Tensor:
    """(B, T, D) and some (B, T', D), one behind the other -> (B, T, D); heads as in D_HEADS.

    All may be parts of wider rows.
    """
    n_rows, n_queries, width = queries.shape
    n_keys, n_threads = sum(part.shape[1] for part in keys), torch.get_num_threads()
    assert width // n_heads in D_HEADS
    segments = (native.Segment * len(keys))(
        *(
            native.Segment(k.data_ptr(), v.data_ptr(), _apart(k, v), k.shape[1])
            for k, v in zip(keys, values, strict=True)
        )
    )
    out = torch.empty(n_rows, n_queries, width, dtype=torch.bfloat16)
    library = _library()
    n_bytes = library.nightingale_attend_bytes(n_keys)
    scratch = torch.empty(n_threads * n_bytes, dtype=torch.uint8)
    places = torch.empty(2 * n_rows * n_keys, dtype=torch.int64)
    library.nightingale_attend(
        queries.data_ptr(), _apart(queries), segments, len(keys), n_rows, n_heads,
        width // n_heads, n_queries, n_keys, out.data_ptr(), scratch.data_ptr(),
        places.data_ptr(), n_threads,
    )  # fmt: skip
    return out


def add_norm(x: Tensor, y: Tensor | None, norm: nn.LayerNorm) -> Tensor:
    """x, fp32, grows by y, bfloat16, in place; returns its norm, bfloat16."""
    out = torch.empty_like(x, dtype=torch.bfloat16)
    n_rows = x.numel() // x.shape[-1]
    _library().nightingale_add_norm(
        x.data_ptr(),
        _address(y),
        describe_norm(norm),
        n_rows,
        out.data_ptr(),
        torch.get_num_threads(),
    )
    return out


def norm_mish(h: Tensor, norm: nn.LayerNorm, shift: Tensor | None = None) -> Tensor:
    """mish(norm(h)), each row plus `shift`, fp32 (D,); bfloat16 in and out."""
    out = torch.empty_like(h)
    n_rows = h.numel() // h.shape[-1]
    _library().nightingale_norm_mish(
        h.data_ptr(), describe_norm(norm), _address(shift), None, n_rows, out.data_ptr(), None,
        torch.get_num_threads(),
    )  # fmt: skip
    return out


def norm_mish_around(h: Tensor, norm: nn.LayerNorm, around: Tensor) -> Tensor:
    """mish(norm(h)) + around; bfloat16 in, fp32 out."""
    out = torch.empty_like(h, dtype=torch.float32)
    n_rows = h.numel() // h.shape[-1]
    _library().nightingale_norm_mish(
        h.data_ptr(), describe_norm(norm), None, around.data_ptr(), n_rows, None, out.data_ptr(),
        torch.get_num_threads(),
    )  # fmt: skip
    return out


def _apart(*tensors: Tensor) -> int:
    """Numbers from one row to the next; rows of a batch must follow each other."""
    (found,) = {_stride(x) for x in tensors}
    return found


def _stride(x: Tensor) -> int:
    n_rows, n, _ = x.shape
    assert x.stride(2) == 1
    assert n_rows == 1 or x.stride(0) == n * x.stride(1)
    return x.stride(1)


def describe_norm(norm: nn.LayerNorm) -> native.Norm:
    width = norm.weight.shape[0]
    return native.Norm(norm.weight.data_ptr(), norm.bias.data_ptr(), width, norm.eps)


def _address(x: Tensor | None) -> int | None:
    assert x is None or x.is_contiguous()
    return None if x is None else x.data_ptr()


def _library() -> ctypes.CDLL:
    library = native.tiles()
    assert library is not None, "ask are_here() first"
    return library
