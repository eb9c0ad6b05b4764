"""Which way to go: the velocity that leads from noisy mel frames towards speech.

What stays the same is computed once: `shifts` for all times of a schedule, `context` for all steps
of an utterance. Convolutions are causal, attention is full. Knows nothing of tokens and schedules.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nightingale.backends.torch.flow.conv import CausalConv, convolve_past, each
from nightingale.backends.torch.flow.window import AnyWindow, alone, joined
from nightingale.nn.deterministic import Linear, linear
from nightingale.nn.device import HOST

NORM_EPS = 1e-5
TIME_SCALE = 1000.0  # flow time runs from 0 to 1, its waves were made for 0 to 1000
SLOWEST = 10_000.0


@dataclass(frozen=True, slots=True)
class EstimatorConfig:
    """The sizes of the estimator; the released ones are the defaults."""

    meanflow: bool = False  # reads where a step ends as well as where it begins
    n_mel: int = 80
    d_model: int = 256
    n_heads: int = 8
    d_head: int = 64
    d_ffn: int = 1024
    d_time: int = 1024
    n_mid_blocks: int = 12
    n_transformers: int = 4  # in each block

    @property
    def n_inputs(self) -> int:
        """Channels at the entrance, and waves that tell the time: x, mu, speaker, prompt."""
        return 4 * self.n_mel


@dataclass(frozen=True, slots=True, eq=False)
class Context:
    """What the entrance makes of mu, speaker and prompt mel: for each request a row with them, and
    where it is guided one without."""

    conv: Tensor  # (B, M, D)
    shortcut: Tensor  # (B, M, D)

    def added_to(self, conv: Tensor, shortcut: Tensor) -> tuple[Tensor, Tensor]:
        """What it makes of x, (R, M, D), is the same for all rows of a request -> (B, M, D)"""
        return _add(conv, self.conv), _add(shortcut, self.shortcut)


def _add(x: Tensor, rows: Tensor) -> Tensor:
    return (x[:, None] + rows.view(len(x), -1, *rows.shape[1:])).flatten(0, 1)


class Estimator(nn.Module):
    """A block, many in the middle, and one that also reads what the first one said."""

    def __init__(self, config: EstimatorConfig) -> None:
        super().__init__()
        width, n_mel = config.d_model, config.n_mel
        self.config = config
        self.time_mlp = _TimeMlp(config)
        self.down_blocks = nn.ModuleList([Block(config, config.n_inputs, ends=True)])
        self.mid_blocks = nn.ModuleList(
            Block(config, width, ends=False) for _ in range(config.n_mid_blocks)
        )
        self.up_blocks = nn.ModuleList([Block(config, 2 * width, ends=True)])
        self.final_block = _ConvNorm(width, width)
        self.final_proj = nn.Conv1d(width, n_mel, 1)
        self.time_embed_mixer: Linear | None = None
        if config.meanflow:
            self.time_embed_mixer = Linear(2 * config.d_time, config.d_time, bias=False)

    @property
    def dtype(self) -> torch.dtype:
        return self.final_proj.weight.dtype

    def shifts(self, start: Tensor, end: Tensor) -> Tensor:
        """(S,) flow times at which steps begin and end -> (S, n_units, D), added in each unit."""
        mlps = (block.unit.mlp[1] for block in self.blocks())
        n_waves = self.config.n_inputs
        return time_shifts(self.time_mlp, self.time_embed_mixer, mlps, n_waves, start, end)

    def context(
        self,
        mu: Tensor,
        speaker: Tensor,
        cond: Tensor,
        *,
        guided: bool,
        window: AnyWindow | None = None,
    ) -> Context:
        """(R, M, 80), (R, 80), (R, M, 80), of R requests: constant over the steps; `guided` adds
        a row without them, behind that of each request."""
        unit, known = self._first.unit, all_known(mu, speaker, cond)
        return make_context(unit.block1.conv, unit.res_conv, known, guided=guided, window=window)

    def forward(
        self, x: Tensor, context: Context, shifts: Tensor, window: AnyWindow | None = None
    ) -> Tensor:
        """(R, M, 80) and the (n_units, D) of this step -> velocities (B, M, 80), a row per
        context."""
        first, last = self._first, cast(Block, self.up_blocks[0])
        unit, n_mel = first.unit, self.config.n_mel
        conv = unit.block1.conv
        h = convolve_past(x, conv.weight[:, :n_mel], conv.bias, window)
        shortcut = linear(x, unit.res_conv.weight[:, :n_mel, 0], unit.res_conv.bias)
        h, shortcut = context.added_to(h, shortcut)
        h = unit.finish(h, shortcut, shifts[0], window)
        skip = first.transform(h, window=window)
        h = first.end(skip, window)
        for block, shift in zip(self.mid_blocks, shifts[1:-1], strict=True):
            h = block(h, shift, window=window)
        h = last.end(last(torch.cat((h, skip), dim=-1), shifts[-1], window=window), window)
        h = self.final_block(h, window)
        return linear(h, self.final_proj.weight[..., 0], self.final_proj.bias)

    @property
    def _first(self) -> Block:
        return cast(Block, self.down_blocks[0])

    def blocks(self) -> Iterator[Block]:
        """From the first to the last."""
        for blocks in (self.down_blocks, self.mid_blocks, self.up_blocks):
            yield from cast("list[Block]", blocks)


class Block(nn.ModuleList):
    """A unit, transformers, and at both ends of the estimator a convolution; named by number."""

    def __init__(self, config: EstimatorConfig, n_inputs: int, *, ends: bool) -> None:
        width = config.d_model
        transformers = nn.Sequential(*(Transformer(config) for _ in range(config.n_transformers)))
        parts: list[nn.Module] = [ResnetBlock(n_inputs, width, config.d_time), transformers]
        super().__init__([*parts, CausalConv(width, width, 3)] if ends else parts)

    @property
    def unit(self) -> ResnetBlock:
        return cast(ResnetBlock, self[0])

    @property
    def transformers(self) -> list[Transformer]:
        return cast("list[Transformer]", list(cast(nn.Sequential, self[1])))

    def forward(
        self, x: Tensor, shift: Tensor, mask: Tensor | None = None, window: AnyWindow | None = None
    ) -> Tensor:
        return self.transform(self.unit(x, shift, window), mask, window)

    def transform(
        self, x: Tensor, mask: Tensor | None = None, window: AnyWindow | None = None
    ) -> Tensor:
        """`mask` says who may look (rows) at whom (columns); without it, everybody at everybody."""
        for transformer in self.transformers:
            x = transformer(x, mask, window)
        return x

    def end(self, x: Tensor, window: AnyWindow | None = None) -> Tensor:
        return self[2](x, window)


class ResnetBlock(nn.Module):
    """Two causal convolutions, the time added in between, and a residual connection."""

    def __init__(self, n_inputs: int, width: int, d_time: int) -> None:
        super().__init__()
        self.mlp = nn.Sequential(nn.Mish(), Linear(d_time, width))
        self.block1 = _ConvNorm(n_inputs, width)
        self.block2 = _ConvNorm(width, width)
        self.res_conv = nn.Conv1d(n_inputs, width, 1)

    def forward(self, x: Tensor, shift: Tensor, window: AnyWindow | None = None) -> Tensor:
        shortcut = linear(x, self.res_conv.weight[..., 0], self.res_conv.bias)
        return self.finish(self.block1.conv(x, window), shortcut, shift, window)

    def finish(
        self, h: Tensor, shortcut: Tensor, shift: Tensor, window: AnyWindow | None = None
    ) -> Tensor:
        """Everything behind the first convolution."""
        return self.block2(self.block1.norm_act(h, window) + shift, window) + shortcut


class _ConvNorm(nn.Module):
    def __init__(self, n_inputs: int, width: int) -> None:
        super().__init__()
        conv, norm = CausalConv(n_inputs, width, 3), nn.LayerNorm(width, NORM_EPS)
        self.block = nn.ModuleDict({"0": conv, "2": norm})

    @property
    def conv(self) -> CausalConv:
        return cast(CausalConv, self.block["0"])

    @property
    def norm(self) -> nn.LayerNorm:
        return cast(nn.LayerNorm, self.block["2"])

    def forward(self, x: Tensor, window: AnyWindow | None = None) -> Tensor:
        return self.norm_act(self.conv(x, window), window)

    def norm_act(self, h: Tensor, window: AnyWindow | None = None) -> Tensor:
        return each(F.mish, self.norm(h), window)


class Transformer(nn.Module):
    def __init__(self, config: EstimatorConfig) -> None:
        super().__init__()
        width, d_ffn = config.d_model, config.d_ffn
        self.norm1 = nn.LayerNorm(width, NORM_EPS)
        self.attn1 = _Attention(width, config.n_heads, config.d_head)
        self.norm3 = nn.LayerNorm(width, NORM_EPS)
        self.ff = _FeedForward(width, d_ffn)

    def forward(self, x: Tensor, mask: Tensor | None, window: AnyWindow | None = None) -> Tensor:
        x = x + self.attn1(self.norm1(x), mask, window)
        return x + self.ff(self.norm3(x), window)


class _Attention(nn.Module):
    def __init__(self, width: int, n_heads: int, d_head: int) -> None:
        super().__init__()
        self.n_heads = n_heads
        self.to_q = Linear(width, n_heads * d_head, bias=False)
        self.to_k = Linear(width, n_heads * d_head, bias=False)
        self.to_v = Linear(width, n_heads * d_head, bias=False)
        self.to_out = nn.Sequential(Linear(n_heads * d_head, width))

    def forward(self, x: Tensor, mask: Tensor | None, window: AnyWindow | None) -> Tensor:
        queries, keys, values = (
            project(x).unflatten(-1, (self.n_heads, -1)).transpose(1, 2)
            for project in (self.to_q, self.to_k, self.to_v)
        )

        def attention(queries: Tensor, keys: list[Tensor], values: list[Tensor]) -> Tensor:
            return F.scaled_dot_product_attention(
                queries, joined(keys), joined(values), attn_mask=mask
            )

        attend = window.attend if window is not None else alone
        out = attend(attention, queries, keys, values)
        return self.to_out(out.transpose(1, 2).flatten(2))


class _FeedForward(nn.Module):
    def __init__(self, width: int, d_ffn: int) -> None:
        super().__init__()
        up_proj = nn.ModuleDict({"proj": Linear(width, d_ffn)})
        self.net = nn.ModuleDict({"0": up_proj, "2": Linear(d_ffn, width)})

    @property
    def up_proj(self) -> nn.Module:
        return cast(nn.ModuleDict, self.net["0"])["proj"]

    @property
    def down_proj(self) -> nn.Module:
        return self.net["2"]

    def forward(self, x: Tensor, window: AnyWindow | None = None) -> Tensor:
        return self.down_proj(each(F.gelu, self.up_proj(x), window))


class _TimeMlp(nn.Module):
    def __init__(self, config: EstimatorConfig) -> None:
        super().__init__()
        self.linear_1 = Linear(config.n_inputs, config.d_time)
        self.linear_2 = Linear(config.d_time, config.d_time)

    def forward(self, waves: Tensor) -> Tensor:
        return self.linear_2(F.silu(self.linear_1(waves)))


def make_context(
    entrance: nn.Conv1d,
    residual: nn.Conv1d,
    known: Tensor,
    *,
    guided: bool,
    window: AnyWindow | None,
) -> Context:
    """What the entrance makes of the channels behind x: see `Estimator.context`, `all_known`."""
    n_x = entrance.in_channels - known.shape[-1]
    conv = convolve_past(known, entrance.weight[:, n_x:], window=window)
    shortcut = linear(known, residual.weight[:, n_x:, 0])
    if guided:
        conv, shortcut = (
            torch.stack((part, torch.zeros_like(part)), dim=1).flatten(0, 1)
            for part in (conv, shortcut)
        )
    return Context(conv, shortcut)


def all_known(mu: Tensor, speaker: Tensor, cond: Tensor) -> Tensor:
    """(R, M, 240) of (R, M, 80), (R, 80) and (R, M, 80)"""
    return torch.cat((mu, speaker[:, None].expand_as(mu), cond), dim=-1)


def time_shifts(
    time_mlp: nn.Module,
    mixer: nn.Module | None,
    mlps: Iterable[nn.Module],
    n_waves: int,
    start: Tensor,
    end: Tensor,
) -> Tensor:
    """The time embedding that each block adds: see `Estimator.shifts`."""
    home = next(time_mlp.parameters())
    time = time_mlp(time_waves(start, n_waves).to(home))
    if mixer is not None:
        until = time_mlp(time_waves(end, n_waves).to(home))
        time = mixer(torch.cat((time, until), dim=-1))
    time = F.mish(time)
    return torch.stack([mlp(time) for mlp in mlps], dim=1)


def time_waves(times: Tensor, n_waves: int) -> Tensor:
    """(S,) -> (S, n_waves): all sines, then all cosines; always in the precision of the times."""
    half = n_waves // 2
    number = torch.arange(half, dtype=torch.float32, device=HOST)
    frequency = torch.exp(number * -(math.log(SLOWEST) / (half - 1)))
    angle = TIME_SCALE * times[:, None] * frequency
    return torch.cat((angle.sin(), angle.cos()), dim=-1)
