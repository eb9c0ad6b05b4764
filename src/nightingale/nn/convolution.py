"""Convolutions over time in bfloat16 on matrix tiles, and the wave between a vocoder's.

Time comes before channels: (T, D). Channels are padded to whole tiles; what is padded is zero and
stays zero. For processors with tiles: ask `tiles.are_here()` first.
"""

from __future__ import annotations

import ctypes

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nightingale.nn import native
from nightingale.nn.tiles import describe_norm

PART = 32  # channels come in multiples of this


def whole(n_channels: int) -> int:
    """So many channels, padded."""
    return -(-n_channels // PART) * PART


class Convolution(nn.Module):
    """(T + reach, D) or (B, T + reach, D) in bfloat16 -> (T, D') or (B, T, D')

    A linear layer is one of a single tap.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, dilation: int = 1) -> None:
        super().__init__()
        n_out, n_in, self._n_taps = weight.shape
        self.n_in, self.n_out, self._dilation = whole(n_in), whole(n_out), dilation
        plain = weight.detach().float().contiguous()
        tiled = torch.empty(self.n_out, self.n_in * self._n_taps, dtype=torch.bfloat16)
        _library().nightingale_pack(
            plain.data_ptr(), n_out, n_in, self._n_taps, tiled.data_ptr(), torch.get_num_threads()
        )
        self.register_buffer("weights", tiled)
        shift = torch.zeros(n_out) if bias is None else bias.detach().float()
        self.register_buffer("bias", F.pad(shift, (0, self.n_out - n_out)))
        self.weights: Tensor
        self.bias: Tensor
        self._described: native.Convolution | None = None

    @property
    def reach(self) -> int:
        """How many frames more than it gives it reads."""
        return (self._n_taps - 1) * self._dilation

    def forward(
        self,
        x: Tensor,
        around: Tensor | None = None,
        *,
        narrow: bool = False,
        bends: bool = False,
        norm: nn.LayerNorm | None = None,
    ) -> Tensor:
        """`around`, as wide as the result and in fp32, is added; `bends`: then through gelu.

        The result is fp32, or bfloat16 if it is to be `narrow`. With a norm, for a single tap, x is
        fp32 and is normed on the way in.
        """
        *rows, n_seen, _ = x.shape
        dtype = torch.bfloat16 if narrow else torch.float32
        out = torch.empty(*rows, n_seen - self.reach, self.n_out, dtype=dtype)
        self._run(x, around, out, bends=bends, norm=norm)
        return out

    def add_to(self, stream: Tensor, x: Tensor) -> None:
        """What it makes of x is added to a stream in fp32, in place."""
        assert stream.shape == (*x.shape[:-1], self.n_out)
        assert stream.dtype == torch.float32
        self._run(x, stream, stream)

    def _run(
        self,
        x: Tensor,
        around: Tensor | None,
        out: Tensor,
        *,
        bends: bool = False,
        norm: nn.LayerNorm | None = None,
    ) -> None:
        assert x.shape[-1] == self.n_in
        assert x.is_contiguous()
        assert out.is_contiguous()
        assert x.dtype == (torch.float32 if norm else torch.bfloat16)
        assert norm is None or self._n_taps == 1
        read, narrow = x.data_ptr(), out.dtype == torch.bfloat16
        normed = ctypes.pointer(describe_norm(norm)) if norm else None
        passage = native.Passage(
            None if norm else read, read if norm else None, normed,
            None if around is None else around.data_ptr(),
            None if narrow else out.data_ptr(), out.data_ptr() if narrow else None,
            x.shape[0] if x.dim() == 3 else 1, out.shape[-2], bends,
        )  # fmt: skip
        _library().nightingale_convolve(self._for_c(), passage, torch.get_num_threads())

    def _for_c(self) -> native.Convolution:
        """Addresses of its weights; they are looked up once, when everything is in its place."""
        if self._described is None:
            self._described = native.Convolution(
                self.weights.data_ptr(), self.bias.data_ptr(), self.n_in, self.n_out,
                self._n_taps, self._dilation,
            )  # fmt: skip
        return self._described


def between_zeros(x: Tensor, reach: int, n_channels: int) -> Tensor:
    """(T, D) -> bfloat16, for a convolution: half of its reach on either side."""
    out = torch.zeros(len(x) + reach, n_channels, dtype=torch.bfloat16)
    out[reach // 2 : reach // 2 + len(x), : x.shape[1]] = x
    return out


class Snake(nn.Module):
    """x + sin(a x) ** 2 / a of (T, D) in fp32 -> bfloat16, between zeros, for a convolution"""

    def __init__(self, alpha: Tensor, epsilon: float) -> None:
        super().__init__()
        pace = F.pad(alpha.detach().float(), (0, whole(len(alpha)) - len(alpha)), value=1.0)
        self.register_buffer("pace", pace)
        self.register_buffer("inverse", 1 / (pace + epsilon))
        self.pace: Tensor
        self.inverse: Tensor

    def forward(self, x: Tensor, reach: int) -> Tensor:
        n, width = x.shape
        out = torch.empty(n + reach, width, dtype=torch.bfloat16)
        _library().nightingale_snake(
            x.data_ptr(), self.pace.data_ptr(), self.inverse.data_ptr(), n, width,
            reach // 2, reach - reach // 2, out.data_ptr(), torch.get_num_threads(),
        )  # fmt: skip
        return out


def _library() -> ctypes.CDLL:
    library = native.tiles()
    assert library is not None
    return library
