"""What the AMX kernels compute, in torch: one readable definition of every operation.

Sums are float64 here and fp32 there; everything else is the same, above all where numbers are
rounded to bfloat16. So a kernel's result is the rounding of nearly the same number. Curves (exp2,
mish, gelu, sine) are the exact ones here: kernels approximate them within what `test_amx` states.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

LARGEST = (127 + 100) * 256  # 2^100: an attention weight before it is divided by their sum
BLOCK = 32  # keys whose largest score weights are measured from


def rounded(x: Tensor) -> Tensor:
    """To bfloat16 and back: to nearest, ties to even; numbers below 2^-126 are zero."""
    x = x.float()
    return torch.where(x.abs() < 2.0**-126, 0.0, x).bfloat16().double()


def attend(queries: Tensor, keys: Tensor, values: Tensor, n_heads: int) -> Tensor:
    """(B, T, D), (B, T', D) -> (B, T, D) before the last rounding"""
    q, k, v = (
        x.double().view(*x.shape[:2], n_heads, -1).transpose(1, 2) for x in (queries, keys, values)
    )
    scores = (q @ k.transpose(-1, -2)).float()
    factor = torch.tensor(256 * math.log2(math.e) / math.sqrt(q.shape[-1]))
    weights = _weights(scores, scores[..., :BLOCK].amax(-1, keepdim=True), factor)
    again = _weights(scores, scores.amax(-1, keepdim=True), factor)
    weights = torch.where((weights.sum(-1, keepdim=True) < 2.0**100), weights, again)
    return ((weights @ v) / weights.sum(-1, keepdim=True)).transpose(1, 2).flatten(2)


def _weights(scores: Tensor, largest: Tensor, factor: Tensor) -> Tensor:
    """exp((scores - largest) / sqrt(d)) in bfloat16

    The bits of a bfloat16, as a whole number, are nearly 128 times its binary logarithm: a parabola
    is the rest. Exponents are 256ths of a power of two, made in fp32 by one fused multiply-add.
    """
    shift = 127 * 256 - largest * factor
    exponents = (scores.double() * factor.double() + shift.double()).float()
    n = exponents.round().clamp(0, LARGEST).to(torch.int64)
    part = n % 256
    arch = (((part * (256 - part) * 44) >> 14) + 1) >> 1
    bits = (n - arch + 1) >> 1
    weights = bits.to(torch.int16).view(torch.bfloat16).double()
    return torch.where(bits < 0x80, 0.0, weights)  # denormals are zeros to a product


def normed(x: Tensor, norm: nn.LayerNorm) -> Tensor:
    weight, bias = norm.weight.double(), norm.bias.double()
    return F.layer_norm(x.double(), x.shape[-1:], weight, bias, norm.eps)


def add_norm(x: Tensor, y: Tensor | None, norm: nn.LayerNorm) -> tuple[Tensor, Tensor]:
    """The stream, fp32, and its norm before it is rounded"""
    stream = x if y is None else x + y.float()
    return stream, normed(stream, norm)


def norm_mish(
    h: Tensor, norm: nn.LayerNorm, shift: Tensor | None = None, residual: Tensor | None = None
) -> Tensor:
    out = F.mish(normed(h, norm))
    for added in (shift, residual):
        out = out if added is None else out + added.double()
    return out


def convolve(
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    *,
    dilation: int = 1,
    residual: Tensor | None = None,
    gelu: bool = False,
    norm: nn.LayerNorm | None = None,
) -> Tensor:
    """(B, T + reach, D) -> (B, T, D') before it is rounded, if it is to be

    Weights are rounded to bfloat16, and inputs, be they normed here or before.
    """
    x = rounded(normed(x, norm) if norm else x)
    made = F.conv1d(x.transpose(1, 2), rounded(weight), bias.double(), dilation=dilation)
    out = made.transpose(1, 2)
    out = out if residual is None else out + residual.double()
    return F.gelu(out) if gelu else out


def pack(weight: Tensor) -> Tensor:
    """(D', D, taps) -> the order in which tiles are read: (D' / 16, taps, D / 32, 16, 16, 2)

    The last three: pairs of inputs, outputs, the two of a pair.
    """
    n_out, n_in, n_taps = weight.shape
    whole = F.pad(weight, (0, 0, 0, -n_in % 32, 0, -n_out % 32)).bfloat16()
    return whole.view(len(whole) // 16, 16, -1, 16, 2, n_taps).permute(0, 5, 2, 3, 1, 4)


def snake(x: Tensor, alpha: Tensor, epsilon: float, n_before: int, n_behind: int) -> Tensor:
    """(T, D) -> (n_before + T + n_behind, D) before it is rounded"""
    x, alpha = x.double(), alpha.double()
    out = x + (alpha * x).sin().square() / (alpha + epsilon)
    return F.pad(out, (0, 0, n_before, n_behind))
