"""The flow's networks in MLX: encoder and estimator. What calls them is the torch backend's `Flow`.

Parameter names are those of the released files behind `flow.`. Tokens, mu and mel cross as tensors
on the CPU, once each; what windows leave for the next stays in MLX.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import mlx.core as mx
import torch
from mlx import nn as mnn
from torch import Tensor, nn

from nightingale.backends.mlx.arrays import (
    Layers,
    leaky_relu,
    merge_heads,
    product,
    split_heads,
    to_mlx,
    to_torch,
)
from nightingale.backends.mlx.device import MlxPlacement
from nightingale.backends.mlx.window import Window, arrays_of
from nightingale.backends.torch.flow import window as torch_window
from nightingale.backends.torch.flow.encoder import (
    BLOCK_NORM_EPS,
    LOOKAHEAD_TOKENS,
    EncoderConfig,
    distance_waves,
)
from nightingale.backends.torch.flow.estimator import EstimatorConfig, time_waves
from nightingale.backends.torch.flow.model import Flow
from nightingale.backends.torch.flow.solver import Schedule
from nightingale.backends.torch.flow.window import FlowState, LayerCaches, StepCaches
from nightingale.core import FRAMES_PER_TOKEN, FlowPrompt

_Context = tuple[mx.array, mx.array]  # of convolution and shortcut at the entrance, (B, M, D) each
_FP32_BYTES = 4


class Encoder:
    """What should sound: (1, T) tokens -> mu, (1, 2 T, 80)."""

    def __init__(self, layers: Layers, config: EncoderConfig) -> None:
        self._layers, self._config = layers, config

    def __call__(self, tokens: mx.array, n_ahead: int, window: Window) -> mx.array:
        layers, config = self._layers, self._config
        x = self._entrance("encoder.embed", layers["input_embedding.weight"][tokens])
        name = "encoder.pre_lookahead_layer"
        padded = mx.pad(x, [(0, 0), (0, LOOKAHEAD_TOKENS - n_ahead), (0, 0)])
        ahead = leaky_relu(layers.conv(f"{name}.conv1", padded), 0.01)
        x = x[:, : x.shape[1] - n_ahead] + causal_conv(layers, f"{name}.conv2", ahead, window)
        x = self._blocks("encoder.encoders", config.n_layers, x, window)
        x = mx.repeat(x, FRAMES_PER_TOKEN, axis=1)
        x = causal_conv(layers, "encoder.up_layer.conv", x, window)
        x = self._entrance("encoder.up_embed", x)
        x = self._blocks("encoder.up_encoders", config.n_up_layers, x, window)
        return layers.linear("encoder_proj", layers.norm("encoder.after_norm", x))

    def _entrance(self, name: str, x: mx.array) -> mx.array:
        projected = self._layers.linear(f"{name}.out.0", x)
        return self._layers.norm(f"{name}.out.1", projected) * math.sqrt(self._config.d_model)

    def _blocks(self, name: str, n_layers: int, x: mx.array, window: Window) -> mx.array:
        waves = None
        for index in range(n_layers):
            if waves is None:
                waves = to_mlx(distance_waves(x.shape[1], x.shape[2], window.n_before))
            x = self._block(f"{name}.{index}", x, waves, window)
        return x

    def _block(self, name: str, x: mx.array, waves: mx.array, window: Window) -> mx.array:
        layers = self._layers
        normed = layers.norm(f"{name}.norm_mha", x, BLOCK_NORM_EPS)
        x = x + self._attention(f"{name}.self_attn", normed, waves, window)
        normed = layers.norm(f"{name}.norm_ff", x, BLOCK_NORM_EPS)
        inner = mnn.silu(layers.linear(f"{name}.feed_forward.w_1", normed))
        return x + layers.linear(f"{name}.feed_forward.w_2", inner)

    def _attention(self, name: str, x: mx.array, waves: mx.array, window: Window) -> mx.array:
        """Scores are (query + u) . key + (query + v) . distance."""
        layers, n_heads = self._layers, self._config.n_heads
        queries, keys, values = (
            split_heads(layers.linear(f"{name}.linear_{part}", x), n_heads) for part in "qkv"
        )
        keys, values = window.reach(keys, values)
        apart = split_heads(layers.linear(f"{name}.linear_pos", waves), n_heads)
        scale = queries.shape[-1] ** -0.5
        by_distance = (queries + layers[f"{name}.pos_bias_v"][:, None]) * scale
        out = mx.fast.scaled_dot_product_attention(
            queries + layers[f"{name}.pos_bias_u"][:, None],
            keys,
            values,
            scale=scale,
            mask=align_distances(by_distance @ apart.swapaxes(-1, -2)),
        )
        return layers.linear(f"{name}.linear_out", merge_heads(out))


class Estimator:
    """Which way to go: the velocity from noisy mel frames towards speech."""

    def __init__(self, layers: Layers, config: EstimatorConfig) -> None:
        self._layers, self._config = layers, config
        middle = (f"mid_blocks.{index}" for index in range(config.n_mid_blocks))
        names = ("down_blocks.0", *middle, "up_blocks.0")
        self._blocks = [f"decoder.estimator.{name}" for name in names]
        self._first = f"{self._blocks[0]}.0"

    def shifts(self, schedule: Schedule) -> list[mx.array]:
        """What each step adds in the blocks, (n_blocks, D) each."""
        layers, times = self._layers, schedule.times()
        time = self._time(times[:-1])
        if self._config.meanflow:
            both = mx.concatenate([time, self._time(times[1:])], axis=-1)
            time = layers.linear("decoder.estimator.time_embed_mixer", both)
        time = mnn.mish(time)
        by_block = [layers.linear(f"{name}.0.mlp.1", time) for name in self._blocks]
        return list(mx.stack(by_block, axis=1))

    def _time(self, times: Tensor) -> mx.array:
        name, waves = "decoder.estimator.time_mlp", to_mlx(time_waves(times, self._config.n_inputs))
        inner = mnn.silu(self._layers.linear(f"{name}.linear_1", waves))
        return self._layers.linear(f"{name}.linear_2", inner)

    def context(
        self, mu: mx.array, speaker: mx.array, cond: mx.array, *, guided: bool, window: Window
    ) -> _Context:
        """What is the same in all steps; `guided` adds a row without it."""
        layers, n_x = self._layers, self._config.n_mel
        known = mx.concatenate([mu, mx.broadcast_to(speaker, mu.shape), cond], axis=-1)
        weight = layers[f"{self._first}.block1.block.0.weight"][:, :, n_x:]
        conv = mx.conv1d(window.past(known, weight.shape[1] - 1), weight)
        shortcut = product(known, layers[f"{self._first}.res_conv.weight"][:, 0, n_x:])
        if guided:
            conv, shortcut = (
                mx.concatenate([part, mx.zeros_like(part)]) for part in (conv, shortcut)
            )
        return conv, shortcut

    def __call__(
        self, x: mx.array, context: _Context, shifts: mx.array, window: Window
    ) -> mx.array:
        """(1, M, 80) -> velocities (B, M, 80), a row per context"""
        layers, n_x, first = self._layers, self._config.n_mel, self._first
        weight = layers[f"{first}.block1.block.0.weight"][:, :, :n_x]
        h = mx.conv1d(window.past(x, weight.shape[1] - 1), weight)
        h = h + layers[f"{first}.block1.block.0.bias"] + context[0]
        shortcut = product(x, layers[f"{first}.res_conv.weight"][:, 0, :n_x])
        shortcut = shortcut + layers[f"{first}.res_conv.bias"] + context[1]
        h = self._finish(first, h, shortcut, shifts[0], window)
        skip = self._transform(self._blocks[0], h, window)
        h = causal_conv(layers, f"{self._blocks[0]}.2", skip, window)
        for name, shift in zip(self._blocks[1:-1], shifts[1:-1], strict=True):
            h = self._transform(name, self._resnet(f"{name}.0", h, shift, window), window)
        last, h = self._blocks[-1], mx.concatenate([h, skip], axis=-1)
        h = self._transform(last, self._resnet(f"{last}.0", h, shifts[-1], window), window)
        h = causal_conv(layers, f"{last}.2", h, window)
        h = causal_conv(layers, "decoder.estimator.final_block.block.0", h, window)
        h = mnn.mish(layers.norm("decoder.estimator.final_block.block.2", h))
        return layers.linear("decoder.estimator.final_proj", h)

    def _resnet(self, name: str, x: mx.array, shift: mx.array, window: Window) -> mx.array:
        shortcut = self._layers.linear(f"{name}.res_conv", x)
        h = causal_conv(self._layers, f"{name}.block1.block.0", x, window)
        return self._finish(name, h, shortcut, shift, window)

    def _finish(
        self, name: str, h: mx.array, shortcut: mx.array, shift: mx.array, window: Window
    ) -> mx.array:
        """Everything behind the first convolution."""
        layers = self._layers
        h = mnn.mish(layers.norm(f"{name}.block1.block.2", h)) + shift
        h = causal_conv(layers, f"{name}.block2.block.0", h, window)
        return mnn.mish(layers.norm(f"{name}.block2.block.2", h)) + shortcut

    def _transform(self, block: str, x: mx.array, window: Window) -> mx.array:
        layers, n_heads = self._layers, self._config.n_heads
        for index in range(self._config.n_transformers):
            name = f"{block}.1.{index}"
            normed = layers.norm(f"{name}.norm1", x)
            queries, keys, values = (
                split_heads(layers.linear(f"{name}.attn1.to_{part}", normed), n_heads)
                for part in "qkv"
            )
            keys, values = window.reach(keys, values)
            scale = queries.shape[-1] ** -0.5
            out = mx.fast.scaled_dot_product_attention(queries, keys, values, scale=scale)
            x = x + layers.linear(f"{name}.attn1.to_out.0", merge_heads(out))
            inner = layers.linear(f"{name}.ff.net.0.proj", layers.norm(f"{name}.norm3", x))
            x = x + layers.linear(f"{name}.ff.net.2", mnn.gelu(inner))
        return x


class MlxFlow(Flow):
    """Speech tokens -> mel frames, as `Flow`."""

    def __init__(self, slow: Flow, placement: MlxPlacement) -> None:
        nn.Module.__init__(self)
        self.config = slow.config
        self.spk_embed_affine_layer, self.encoder_proj = (
            slow.spk_embed_affine_layer,
            slow.encoder_proj,
        )
        self._placement = placement
        with placement.computing():
            self._layers = layers = Layers(slow.state_dict())
            self._encoder = Encoder(layers, self.config.encoder)
            self._estimator = Estimator(layers, self.config.estimator)

    @property
    def dtype(self) -> torch.dtype:
        return torch.float32

    @property
    def window_bytes(self) -> int:
        encoder, estimator = map(self._layers.n_bytes, ("encoder.", "decoder.estimator."))
        return encoder + self.config.schedule.n_steps * estimator

    def place_state(self, state: FlowState) -> FlowState:
        return state.mapped(to_mlx)  # type: ignore[arg-type]

    @property
    def _itemsizes(self) -> tuple[int, int]:
        return _FP32_BYTES, _FP32_BYTES

    def _mu(self, tokens: Tensor, n_ahead: int, window: torch_window.AnyWindow | None) -> Tensor:
        with self._placement.computing():
            if window is None:
                return to_torch(self._encoder(to_mlx(tokens), n_ahead, Window()))
            assert isinstance(window, torch_window.Window), "windows are rendered one by one"
            left = window.left or LayerCaches()
            mu = self._encoder(to_mlx(tokens), n_ahead, Window(window.before, left))
            mx.eval(mu, arrays_of(left))
            return to_torch(mu)

    def _solved(
        self, mu: Tensor, speaker: Tensor, cond: Tensor, noise: Tensor, schedule: Schedule
    ) -> Tensor:
        with self._placement.computing():
            inputs = [to_mlx(part)[None] for part in (mu, speaker, cond, noise)]
            steps = (Window() for _ in range(schedule.n_steps))
            return to_torch(self._solve(inputs, schedule, Window(), steps)[0])

    def _solve_chunk(
        self,
        mu: Tensor,
        prompts: Sequence[FlowPrompt],
        cond: Tensor,
        noise: Tensor,
        before: Sequence[Sequence[StepCaches]],
    ) -> tuple[Tensor, list[StepCaches]]:
        (prompt,), (seen,), schedule = prompts, before, self.config.schedule
        left = StepCaches(steps=[LayerCaches() for _ in range(schedule.n_steps)])
        with self._placement.computing():
            known = Window([caches.known for caches in seen], left.known)
            steps = (
                Window([caches.steps[step] for caches in seen], own)
                for step, own in enumerate(left.steps)
            )
            inputs = [to_mlx(t) for t in (mu, self.speaker(prompt)[None], cond, noise)]
            mel = self._solve(inputs, schedule, known, steps)
            mx.eval(mel, arrays_of(left))  # the one wait
            return to_torch(mel), [left]

    def _solve(
        self,
        inputs: Sequence[mx.array],
        schedule: Schedule,
        known: Window,
        steps: Iterator[Window],
    ) -> mx.array:
        """mu, speaker, cond and noise, (1, M, 80) or (1, 80), -> mel, (1, M, 80), in steps."""
        mu, speaker, cond, x = inputs
        estimator, guidance = self._estimator, schedule.guidance
        context = estimator.context(mu, speaker, cond, guided=guidance > 0, window=known)
        sizes = schedule.times().diff().tolist()
        for shift, size, window in zip(estimator.shifts(schedule), sizes, steps, strict=True):
            velocity = estimator(x, context, shift, window)
            if guidance > 0:
                velocity = (1 + guidance) * velocity[:1] - guidance * velocity[1:]
            x = x + size * velocity
        return x


def causal_conv(layers: Layers, name: str, x: mx.array, window: Window) -> mx.array:
    """(B, T, D) -> (B, T, D'): a position reads itself and what stands left of it."""
    n_taps = layers[f"{name}.weight"].shape[1]
    return layers.conv(name, window.past(x, n_taps - 1))


def align_distances(scores: mx.array) -> mx.array:
    """(..., T, T + T') by query and distance -> (..., T, T') by query and key: see the torch
    backend's `encoder.align_distances`."""
    n, apart = scores.shape[-2], scores.shape[-1] - 1
    rows = scores.reshape(*scores.shape[:-2], -1)[..., n - 1 : n - 1 + n * apart]
    return rows.reshape(*rows.shape[:-1], n, apart)[..., : apart + 1 - n]
