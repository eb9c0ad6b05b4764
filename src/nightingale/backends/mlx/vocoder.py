"""The vocoder's networks in MLX: pitch predictor and filter. Excitation, Fourier transforms and
streaming are the torch backend's. Parameter names are those of the released files.
"""

from __future__ import annotations

import math
from typing import cast

import mlx.core as mx
import torch
from mlx import nn as mnn
from torch import Tensor, nn

from nightingale.backends.mlx.arrays import Layers, leaky_relu, to_mlx, to_torch
from nightingale.backends.mlx.device import MlxPlacement
from nightingale.backends.torch.vocoder.model import (
    EPSILON,
    LAST_SLOPE,
    SLOPE,
    Upsampling,
    Vocoder,
    excitation,
    sound,
)

_N_F0_LAYERS = 5


class MlxVocoder(Vocoder):
    """Mel frames -> samples, as `Vocoder`."""

    def __init__(self, slow: Vocoder, placement: MlxPlacement) -> None:
        nn.Module.__init__(self)
        self.config, self.m_source = slow.config, slow.m_source
        self._placement = placement
        with placement.computing():
            self._layers = Layers(slow.state_dict())
            self._upsamplers = [
                mx.contiguous(to_mlx(cast(Upsampling, up).weight).transpose(1, 2, 0))
                for up in slow.ups
            ]  # (D, 2 D, taps) -> (D', taps, D)

    @property
    def dtype(self) -> torch.dtype:
        return torch.float32

    @property
    def weight_bytes(self) -> int:
        return self._layers.n_bytes()

    def f0(self, mel: Tensor) -> Tensor:
        self._check(mel)
        layers, name = self._layers, "f0_predictor"
        with self._placement.computing():
            x = to_mlx(mel.T)[None]  # (1, M, 80)
            for index in range(_N_F0_LAYERS):
                x = mnn.elu(layers.conv(f"{name}.condnet.{2 * index}", x, padding=1))
            return to_torch(mx.abs(layers.linear(f"{name}.classifier", x))[0, :, 0])

    def synthesize(self, mel: Tensor, source: Tensor) -> Tensor:
        layers = self._layers
        spectra = excitation(source, self.config)  # (B, C, M * 480 / hop + 1)
        with self._placement.computing():
            seen = to_mlx(spectra.mT)
            x = layers.conv("conv_pre", to_mlx(mel.mT), padding=3)  # (B, M, D)
            for stage in range(len(self._upsamplers)):
                x = self._filter_stage(stage, x, seen)
            x = layers.conv("conv_post", leaky_relu(x, LAST_SLOPE), padding=3)
            made = to_torch(x)
        return sound(made.mT, spectra, self.config)

    def _filter_stage(self, stage: int, x: mx.array, spectra: mx.array) -> mx.array:
        config, layers = self.config, self._layers
        factor, kernel = config.stages[stage]
        cut = (kernel - factor) // 2
        x = leaky_relu(x, SLOPE)
        x = mx.conv_transpose1d(x, self._upsamplers[stage], factor, cut)
        x = x + layers[f"ups.{stage}.bias"]
        if stage == len(config.stages) - 1:
            x = mx.concatenate([x[:, 1:2], x], axis=1)  # centered frames: one more than the hops
        if config.source_kernels:
            down = math.prod(factor for factor, _ in config.stages[stage + 1 :])
            padding = 0 if down == 1 else down // 2
            branch = layers.conv(f"source_downs.{stage}", spectra, padding=padding, stride=down)
            kernel = config.source_kernels[stage]
            x = x + self._residual_block(f"source_resblocks.{stage}", branch, kernel)
        n = len(config.kernels)
        blocks = [
            self._residual_block(f"resblocks.{stage * n + index}", x, kernel)
            for index, kernel in enumerate(config.kernels)
        ]
        return sum(blocks[1:], start=blocks[0]) / n

    def _residual_block(self, name: str, x: mx.array, kernel: int) -> mx.array:
        layers = self._layers
        for index, wide in enumerate(self.config.dilations):
            h = self._snake(f"{name}.activations1.{index}", x)
            reach = kernel // 2
            h = layers.conv(f"{name}.convs1.{index}", h, padding=reach * wide, dilation=wide)
            h = self._snake(f"{name}.activations2.{index}", h)
            x = layers.conv(f"{name}.convs2.{index}", h, padding=reach) + x
        return x

    def _snake(self, name: str, x: mx.array) -> mx.array:
        """x + sin(a x) ** 2 / a"""
        pace = self._layers[f"{name}.alpha"]
        return x + mx.square(mx.sin(x * pace)) * (1 / (pace + EPSILON))
