"""Convolutions over time by compiled code, and the wave between a vocoder's.

In bfloat16 by AMX, or in 8 bits by `native.int8`: the library decides. Time comes before channels:
(T, D). Channels are padded to whole tiles; what is padded is zero and stays zero.
"""

from __future__ import annotations

import ctypes

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nightingale.errors import LayoutError
from nightingale.nn import native
from nightingale.nn.fused import amx_library, describe_norm

PART = 32  # channels come in multiples of this


def whole(n_channels: int) -> int:
    """So many channels, padded."""
    return -(-n_channels // PART) * PART


class Convolution(nn.Module):
    """(T + reach, D) or (B, T + reach, D) in bfloat16 -> (T, D') or (B, T, D')

    A linear layer is one of a single tap.
    """

    def __init__(
        self,
        weight: Tensor,
        bias: Tensor | None,
        dilation: int = 1,
        *,
        library: ctypes.CDLL | None = None,
    ) -> None:
        super().__init__()
        self._library = library or amx_library()
        n_out, n_in, self._n_taps = weight.shape
        self.n_in, self.n_out, self._dilation = whole(n_in), whole(n_out), dilation
        plain = weight.detach().float().contiguous()
        n_bytes = self._library.nightingale_pack_bytes(n_out, n_in, self._n_taps)
        packed = torch.empty(n_bytes, dtype=torch.uint8)
        self._library.nightingale_pack(
            native.address(plain),
            n_out,
            n_in,
            self._n_taps,
            packed.data_ptr(),
            torch.get_num_threads(),
        )
        self.register_buffer("weights", packed)
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
        residual: Tensor | None = None,
        *,
        bf16: bool = False,
        gelu: bool = False,
        norm: nn.LayerNorm | None = None,
    ) -> Tensor:
        """`residual`, as wide as the result and in fp32, is added; `gelu`: then through gelu.

        The result is fp32, or bfloat16 if it is to be `bf16`. With a norm, for a single tap, x is
        fp32 and is normed on the way in.
        """
        *rows, n_seen, _ = x.shape
        dtype = torch.bfloat16 if bf16 else torch.float32
        out = torch.empty(*rows, n_seen - self.reach, self.n_out, dtype=dtype)
        self._run(x, residual, out, gelu=gelu, norm=norm)
        return out

    def add_to(self, stream: Tensor, x: Tensor) -> None:
        """What it makes of x is added to a stream in fp32, in place."""
        self._run(x, stream, stream)

    def _run(
        self,
        x: Tensor,
        residual: Tensor | None,
        out: Tensor,
        *,
        gelu: bool = False,
        norm: nn.LayerNorm | None = None,
    ) -> None:
        self._check(x, residual, out, norm)
        read = native.address(x, torch.float32 if norm else torch.bfloat16)
        bf16 = out.dtype == torch.bfloat16
        written = native.address(out, torch.bfloat16 if bf16 else torch.float32)
        normed = ctypes.pointer(describe_norm(norm, x)) if norm else None
        n_rows, n, described = x.shape[0] if x.dim() == 3 else 1, out.shape[-2], self._for_c()
        n_bytes = self._library.nightingale_convolve_bytes(described, n_rows, n)
        scratch = torch.empty(n_bytes, dtype=torch.uint8)
        args = native.ConvolutionArgs(
            None if norm else read, read if norm else None, normed,
            native.address(residual, torch.float32),
            None if bf16 else written, written if bf16 else None, scratch.data_ptr(),
            n_rows, n, gelu,
        )  # fmt: skip
        self._library.nightingale_convolve(described, args, torch.get_num_threads())

    def _check(
        self, x: Tensor, residual: Tensor | None, out: Tensor, norm: nn.LayerNorm | None
    ) -> None:
        """Whether C would stay inside of all of them."""
        *rows, n_seen, n_in = x.shape
        expected = (*rows, n_seen - self.reach, self.n_out)
        is_sound = n_in == self.n_in and n_seen > self.reach and len(rows) < 2
        if not is_sound or out.shape != expected or (norm is not None and self._n_taps != 1):
            raise LayoutError(
                f"a convolution of {self.n_in} to {self.n_out} channels and reach {self.reach} was "
                f"given {tuple(x.shape)}, to write {tuple(out.shape)}"
            )
        if residual is not None and residual.shape != expected:
            raise LayoutError(f"{tuple(residual.shape)} cannot be added to {expected}")

    def _for_c(self) -> native.Convolution:
        """Addresses of its weights; they are looked up once, when everything is in its place."""
        if self._described is None:
            self._described = native.Convolution(
                native.address(self.weights, torch.uint8),
                native.address(self.bias, torch.float32), self.n_in, self.n_out,
                self._n_taps, self._dilation,
            )  # fmt: skip
        return self._described


def between_zeros(x: Tensor, reach: int, n_channels: int, n_before: int | None = None) -> Tensor:
    """(T, D) -> bfloat16, for a convolution: half of its reach on either side, or `n_before` of it
    in front."""
    begin = reach // 2 if n_before is None else n_before
    out = torch.zeros(len(x) + reach, n_channels, dtype=torch.bfloat16)
    out[begin : begin + len(x), : x.shape[1]] = x
    return out


class Snake(nn.Module):
    """x + sin(a x) ** 2 / a of (T, D) in fp32 -> bfloat16, between zeros, for a convolution"""

    def __init__(
        self, alpha: Tensor, epsilon: float, *, library: ctypes.CDLL | None = None
    ) -> None:
        super().__init__()
        self._library = library or amx_library()
        pace = F.pad(alpha.detach().float(), (0, whole(len(alpha)) - len(alpha)), value=1.0)
        self.register_buffer("pace", pace)
        self.register_buffer("inverse", 1 / (pace + epsilon))
        self.pace: Tensor
        self.inverse: Tensor

    def forward(self, x: Tensor, reach: int, n_before: int | None = None) -> Tensor:
        """Zeros as in `between_zeros`."""
        n, width = x.shape
        begin = reach // 2 if n_before is None else n_before
        if width != len(self.pace) or not 0 <= begin <= reach:
            raise LayoutError(f"{len(self.pace)} channels were given {width}, with reach {reach}")
        out = torch.empty(n + reach, width, dtype=torch.bfloat16)
        self._library.nightingale_snake(
            native.address(x, torch.float32), native.address(self.pace, torch.float32),
            native.address(self.inverse, torch.float32), n, width,
            begin, reach - begin, out.data_ptr(), torch.get_num_threads(),
        )  # fmt: skip
        return out
