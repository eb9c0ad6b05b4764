"""Weights as small whole numbers: (code - zero) * scale, a scale for every 64 of a row.

The form that `nn/native` reads. Eight bits lose next to nothing; for four, each scale is the one of
a few that comes nearest to its weights. Knows nothing of layers.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from nightingale.errors import LayoutError

Bits = Literal[4, 8]
GROUP = 64  # weights that share a scale
_HALF = GROUP // 2
_ZERO: dict[Bits, int] = {8: 128, 4: 8}
_REACH = torch.linspace(6.0, 9.0, 13)  # four bits: which code the largest weight of a group gets


def pack(weight: Tensor, bits: Bits) -> tuple[Tensor, Tensor]:
    """(D', D) -> codes, (D', D) bytes or half as many, and scales, (D', D / 64) in bfloat16."""
    n_out, n_in = weight.shape
    if n_in % GROUP:
        raise LayoutError(f"rows of {n_in} weights cannot be packed: not a multiple of {GROUP}")
    groups = weight.float().contiguous().view(n_out, -1, GROUP)
    scales = _scales(groups, bits)
    codes = _codes(groups, scales, bits).add_(_ZERO[bits]).to(torch.uint8)
    if bits == 4:  # the first half of a group lies in the low halves of its bytes
        codes = codes[..., :_HALF] | codes[..., _HALF:] << 4
    return codes.reshape(n_out, -1), scales


def unpack(codes: Tensor, scales: Tensor, bits: Bits) -> Tensor:
    """The weights again, (D', D), as near as they were kept."""
    groups = codes.view(*scales.shape, -1)
    if bits == 4:
        groups = torch.cat((groups & 15, groups >> 4), dim=-1)
    weights = (groups.float() - _ZERO[bits]) * scales.float()[..., None]
    return weights.flatten(1)


def _scales(groups: Tensor, bits: Bits) -> Tensor:
    """(D', D / 64), bfloat16"""
    largest = groups.abs().amax(-1).clamp(min=1e-12)
    if bits == 8:
        return (largest / 127).bfloat16()
    # The codes reach one further down than up, so the sign of a scale counts.
    sign = torch.where(groups.amax(-1) < largest, 1.0, -1.0)
    best, least = largest, torch.full_like(largest, torch.inf)
    for reach in _REACH.tolist():
        scale = (sign * largest / reach).bfloat16()
        made = _codes(groups, scale, bits) * scale.float()[..., None]
        error = (made - groups).square().sum(-1)
        best, least = torch.where(error < least, scale.float(), best), error.minimum(least)
    return best.bfloat16()


def _codes(groups: Tensor, scales: Tensor, bits: Bits) -> Tensor:
    zero = _ZERO[bits]
    return (groups / scales.float()[..., None]).round_().clamp_(-zero, zero - 1)
