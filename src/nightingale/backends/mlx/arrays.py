"""Tensors of torch on the CPU <-> arrays of MLX, and the layers that both decoder stages use.

Weights keep the names of the released files. Time comes before channels.
"""

from __future__ import annotations

from collections.abc import Mapping

import mlx.core as mx
import numpy as np
import torch
from torch import Tensor

NORM_EPS = 1e-5


def to_mlx(tensor: Tensor) -> mx.array:
    """A copy; floats in 32 bits."""
    wide = tensor.detach().float() if tensor.is_floating_point() else tensor.detach()
    return mx.array(wide.cpu().numpy())


def to_torch(array: mx.array) -> Tensor:
    """A copy on the CPU. Waits until it is computed."""
    return torch.from_numpy(np.array(array))


def split_heads(x: mx.array, n_heads: int) -> mx.array:
    """(..., T, D) -> (..., H, T, d_head)"""
    return x.reshape(*x.shape[:-1], n_heads, -1).swapaxes(-3, -2)


def merge_heads(x: mx.array) -> mx.array:
    """(B, H, T, d_head) -> (B, T, D)"""
    return x.swapaxes(1, 2).reshape(x.shape[0], x.shape[2], -1)


class Layers:
    """Weights by name, and what is computed with those of one name."""

    def __init__(self, tensors: Mapping[str, Tensor]) -> None:
        self._arrays = {name: _stored(to_mlx(tensor)) for name, tensor in tensors.items()}
        mx.eval(self._arrays)

    def __getitem__(self, name: str) -> mx.array:
        return self._arrays[name]

    def n_bytes(self, prefix: str = "") -> int:
        return sum(it.nbytes for name, it in self._arrays.items() if name.startswith(prefix))

    def bias(self, name: str) -> mx.array | None:
        return self._arrays.get(f"{name}.bias")

    def linear(self, name: str, x: mx.array) -> mx.array:
        """Also of convolutions with one tap."""
        weight = self[f"{name}.weight"]
        return product(x, weight[:, 0] if weight.ndim == 3 else weight, self.bias(name))

    def norm(self, name: str, x: mx.array, eps: float = NORM_EPS) -> mx.array:
        return mx.fast.layer_norm(x, self[f"{name}.weight"], self[f"{name}.bias"], eps)

    def conv(
        self, name: str, x: mx.array, *, padding: int = 0, dilation: int = 1, stride: int = 1
    ) -> mx.array:
        """(B, T, D) -> (B, T', D')"""
        weight = self[f"{name}.weight"]
        return mx.conv1d(x, weight, stride, padding, dilation) + self[f"{name}.bias"]


def product(x: mx.array, weight: mx.array, bias: mx.array | None = None) -> mx.array:
    """(..., D) by (D', D) -> (..., D')"""
    return x @ weight.T if bias is None else mx.addmm(bias, x, weight.T)


def leaky_relu(x: mx.array, slope: float) -> mx.array:
    return mx.where(x < 0, x * slope, x)


def _stored(weight: mx.array) -> mx.array:
    """Convolutions: (D', D, taps), as torch has them, -> (D', taps, D)."""
    return mx.contiguous(weight.swapaxes(1, 2)) if weight.ndim == 3 else weight
