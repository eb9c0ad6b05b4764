"""T3's layers with weights of 8 or 4 bits, read by compiled code: the fast twin of the backbones.

`quantize` takes a T3 as it was released and gives it these layers; `empty_quantized` gives it empty
ones, to be loaded. Results do not depend on the number of threads or on the rows computed beside.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from nightingale.backends.torch.t3 import gpt2, llama
from nightingale.backends.torch.t3.attention import Alignment
from nightingale.backends.torch.t3.cache import KVCache
from nightingale.backends.torch.t3.model import T3, T3Config
from nightingale.errors import LayoutError, MissingPackageError
from nightingale.nn import native
from nightingale.nn.packing import GROUP, Bits, pack

HEAD_BITS: Bits = 8  # the last layer chooses the token: it is never made smaller
CHUNK = 256  # positions read at once: bounds the workspace
TILE = 16
MAX_WIDTH = 16_384  # numbers of a row, which C keeps on its stack


class QuantizedLinear(nn.Module):
    """(..., D) -> (..., D'), fp32 in and out."""

    def __init__(self, n_in: int, n_out: int, bits: Bits, *, bias: bool) -> None:
        super().__init__()
        if n_in % GROUP or not 0 < n_in <= MAX_WIDTH or n_out < 1:
            raise LayoutError(
                f"a layer of {n_in} to {n_out} numbers cannot be packed: the first must be a "
                f"multiple of {GROUP}, up to {MAX_WIDTH}"
            )
        self.n_in, self.n_out, self.bits = n_in, n_out, bits
        n_bytes = n_in * bits // 8
        self.register_buffer("codes", torch.empty(n_out, n_bytes, dtype=torch.uint8))
        self.register_buffer("scales", torch.empty(n_out, n_in // GROUP, dtype=torch.bfloat16))
        self.register_buffer("bias", torch.empty(n_out) if bias else None)
        self.codes: Tensor
        self.scales: Tensor
        self.bias: Tensor | None

    @classmethod
    def of(cls, weight: Tensor, bias: Tensor | None, bits: Bits) -> QuantizedLinear:
        made = cls(weight.shape[1], weight.shape[0], bits, bias=bias is not None)
        made.codes, made.scales = pack(weight, bits)
        made.bias = None if bias is None else bias.detach().float().clone()
        return made

    def forward(self, x: Tensor) -> Tensor:
        if x.shape[-1] != self.n_in:
            raise LayoutError(f"this layer takes rows of {self.n_in} numbers, not {x.shape[-1]}")
        rows = x.reshape(-1, self.n_in).float().contiguous()
        out = torch.empty(len(rows), self.n_out)
        space = _Space.of(len(rows), self.n_in)
        _library().nightingale_multiply(
            self.described(), native.address(rows), len(rows), space.described(), out.data_ptr(),
            torch.get_num_threads(),
        )  # fmt: skip
        return out.view(*x.shape[:-1], -1)

    def described(self) -> native.Linear:
        return native.Linear(
            native.address(self.codes, torch.uint8), native.address(self.scales, torch.bfloat16),
            native.address(self.bias, torch.float32), self.n_out, self.n_in, self.bits,
        )  # fmt: skip


class _Norm(nn.Module):
    def __init__(self, width: int, *, bias: bool) -> None:
        super().__init__()
        self.register_buffer("weight", torch.empty(width))
        self.register_buffer("bias", torch.empty(width) if bias else None)
        self.weight: Tensor
        self.bias: Tensor | None


class _Layer(nn.Module):
    def __init__(self, config: T3Config, bits: Bits) -> None:
        super().__init__()
        width, d_ffn, bias = config.d_model, config.d_ffn, not config.is_llama
        n_up = 2 * d_ffn if config.is_llama else d_ffn
        self.norm1 = _Norm(width, bias=bias)
        self.qkv = QuantizedLinear(width, 3 * width, bits, bias=bias)
        self.out = QuantizedLinear(width, width, bits, bias=bias)
        self.norm2 = _Norm(width, bias=bias)
        self.up = QuantizedLinear(width, n_up, bits, bias=bias)
        self.down = QuantizedLinear(d_ffn, width, bits, bias=bias)

    def described(self) -> native.Layer:
        linears = (part.described() for part in (self.qkv, self.out, self.up, self.down))
        norms = (self.norm1.weight, self.norm1.bias, self.norm2.weight, self.norm2.bias)
        return native.Layer(*linears, *(native.address(norm, torch.float32) for norm in norms))


class QuantizedStack(nn.Module):
    """Stands where `Llama` or `Gpt2` stood, and is called as they are."""

    cache_dtype = torch.bfloat16

    def __init__(self, config: T3Config, bits: Bits, n_pos: int) -> None:
        super().__init__()
        _check_sizes(config)
        self.config, self._n_pos = config, n_pos
        self.layers = nn.ModuleList(_Layer(config, bits) for _ in range(config.n_layers))
        self.norm = _Norm(config.d_model, bias=not config.is_llama)
        self.wpe = None if config.is_llama else nn.Embedding(n_pos, config.d_model)
        cos, sin = llama.rotary_tables(GROUP, n_pos) if config.is_llama else (None, None)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        self.cos: Tensor | None
        self.sin: Tensor | None
        self._described: native.Stack | None = None
        self._workspace = _Workspace(config, 0, 0, 0)

    def forward(
        self, x: Tensor, cache: KVCache | None = None, alignment: Alignment | None = None
    ) -> Tensor:
        """Read (B, T, D) behind what the cache holds; returns the normed last layer, (B, T, D)."""
        if cache is None:
            shape = (x.shape[0], self.config.n_heads, x.shape[1], GROUP)
            cache = KVCache.empty(self.config.n_layers, shape, like=x.to(self.cache_dtype))
        return self.read_slots([x], [(cache, alignment)])[0]

    def read_slots(
        self, inputs: Sequence[Tensor], slots: Sequence[tuple[KVCache, Alignment | None]]
    ) -> list[Tensor]:
        """`forward` for several requests in one pass: each is as if it had been alone.

        The number of positions T is the same for all; rows and what was read before are not.
        """
        if self.wpe is not None:
            table = self.wpe.weight
            inputs = [
                x + table[cache.length : cache.length + x.shape[1]]
                for x, (cache, _) in zip(inputs, slots, strict=True)
            ]
        n_rows, x = [len(x) for x in inputs], torch.cat([x.float() for x in inputs])
        pieces = [self._read(piece, n_rows, slots) for piece in torch.split(x, CHUNK, 1)]
        out = pieces[0] if len(pieces) == 1 else torch.cat(pieces, dim=1)
        return list(torch.split(out, n_rows))

    def _read(
        self,
        x: Tensor,
        n_rows: Sequence[int],
        slots: Sequence[tuple[KVCache, Alignment | None]],
    ) -> Tensor:
        n_all_rows, n_new, width = x.shape
        probes, described = [], []
        for rows, (cache, alignment) in zip(n_rows, slots, strict=True):
            cache.reserve(n_new)
            self._check(x, rows, cache)
            probe = _Probe(alignment, cache.length + n_new)
            described.append(native.Slot(_described_cache(cache), probe.described, rows))
            probes.append(probe)
        n_all = max(cache.length for cache, _ in slots) + n_new
        if not self._workspace.holds(n_all_rows, n_new, n_all):
            n_most = max(cache.capacity for cache, _ in slots)
            with torch.inference_mode(mode=False):  # so that it may be written in either mode
                self._workspace = _Workspace(self.config, n_all_rows, n_new, n_most)
        self._workspace.x[: n_all_rows * n_new].copy_(x.reshape(-1, width))
        _library().nightingale_read(
            self._stack(), (native.Slot * len(slots))(*described), len(slots), n_new,
            self._workspace.described, torch.get_num_threads(),
        )  # fmt: skip
        for (cache, _), probe in zip(slots, probes, strict=True):
            cache.advance(n_new)
            probe.tell()
        return self._workspace.x[: n_all_rows * n_new].clone().view(n_all_rows, n_new, width)

    def _check(self, x: Tensor, n_rows: int, cache: KVCache) -> None:
        config, n_all = self.config, cache.length + x.shape[1]
        if x.shape[-1] != config.d_model or n_all > self._n_pos:
            raise LayoutError(
                f"{n_all} positions of {x.shape[-1]} numbers were given to layers of up to "
                f"{self._n_pos} of {config.d_model}"
            )
        expected = (n_rows, config.n_heads, cache.capacity, GROUP)
        if len(cache.keys) != config.n_layers or cache.keys[0].shape != expected:
            raise LayoutError(
                f"a cache of {len(cache.keys)} layers, {tuple(cache.keys[0].shape)}, was given to "
                f"{config.n_layers} layers, {expected}"
            )

    @property
    def typed_layers(self) -> list[_Layer]:
        return cast("list[_Layer]", list(self.layers))

    def _stack(self) -> native.Stack:
        """Addresses of all weights; they are looked up once, when everything is in its place."""
        if self._described is None:
            config = self.config
            layers = [layer.described() for layer in self.typed_layers]
            tensors = (self.norm.weight, self.norm.bias, self.cos, self.sin)
            self._described = native.Stack(
                (native.Layer * len(layers))(*layers),
                *(native.address(tensor, torch.float32) for tensor in tensors),
                config.n_layers, config.d_model, config.n_heads, config.d_ffn,
                int(config.is_llama), llama.NORM_EPS if config.is_llama else gpt2.NORM_EPS,
            )  # fmt: skip
        return self._described


def _check_sizes(config: T3Config) -> None:
    """Compiled code knows one width of a head; sizes may come from a file's header."""
    width, d_ffn = config.d_model, config.d_ffn
    is_sound = config.n_layers > 0 and config.n_heads > 0 and width == config.n_heads * GROUP
    if not is_sound or d_ffn % GROUP or not 0 < d_ffn <= MAX_WIDTH or width > MAX_WIDTH:
        raise LayoutError(
            f"n_layers={config.n_layers}, n_heads={config.n_heads}, d_model={width}, d_ffn={d_ffn} "
            f"cannot be packed: d_model must be {GROUP} * n_heads, d_ffn a multiple of {GROUP}, "
            f"both up to {MAX_WIDTH}; choose a plan without packed weights, such as reference"
        )


def quantize(t3: T3, bits: Bits) -> T3:
    """Give a T3 packed layers in place of its own; the rest of it stays as it is."""
    config = t3.config
    old = t3.tfmr
    stack = QuantizedStack(config, bits, _n_pos(old))
    with torch.no_grad():
        if isinstance(old, llama.Llama):
            _fill_from_llama(stack, old, bits)
        else:
            _fill_from_gpt2(stack, old, bits)
    t3.tfmr = stack  # type: ignore[assignment]
    head = t3.speech_head
    t3.speech_head = QuantizedLinear.of(head.weight, head.bias, HEAD_BITS)  # type: ignore[assignment]
    return t3


def empty_quantized(t3: T3, bits: Bits) -> T3:
    """Workspace for packed layers, to be loaded, in place of a T3's own."""
    head = t3.speech_head
    t3.tfmr = QuantizedStack(t3.config, bits, _n_pos(t3.tfmr))  # type: ignore[assignment]
    n_out, n_in = head.weight.shape
    bias = head.bias is not None
    t3.speech_head = QuantizedLinear(n_in, n_out, HEAD_BITS, bias=bias)  # type: ignore[assignment]
    return t3


def _n_pos(backbone: nn.Module) -> int:
    if isinstance(backbone, llama.Llama):
        return len(backbone.cos)
    return cast(gpt2.Gpt2, backbone).wpe.num_embeddings


def _fill_from_llama(stack: QuantizedStack, old: llama.Llama, bits: Bits) -> None:
    layers = cast("list[llama.Layer]", list(old.layers))
    for layer, given in zip(stack.typed_layers, layers, strict=True):
        attention, mlp = given.self_attn, given.mlp
        qkv = [part.weight for part in (attention.q_proj, attention.k_proj, attention.v_proj)]
        gate_up = [mlp.gate_proj.weight, mlp.up_proj.weight]
        layer.norm1.weight = given.input_layernorm.weight.detach().float()
        layer.norm2.weight = given.post_attention_layernorm.weight.detach().float()
        layer.qkv = QuantizedLinear.of(torch.cat(qkv), None, bits)
        layer.out = QuantizedLinear.of(attention.o_proj.weight, None, bits)
        layer.up = QuantizedLinear.of(torch.cat(gate_up), None, bits)
        layer.down = QuantizedLinear.of(mlp.down_proj.weight, None, bits)
    stack.norm.weight = old.norm.weight.detach().float()


def _fill_from_gpt2(stack: QuantizedStack, old: gpt2.Gpt2, bits: Bits) -> None:
    layers = cast("list[gpt2.Layer]", list(old.h))
    for layer, given in zip(stack.typed_layers, layers, strict=True):
        parts = {
            "qkv": given.attn.c_attn,
            "out": given.attn.c_proj,
            "up": given.mlp.c_fc,
            "down": given.mlp.c_proj,
        }
        for name, part in parts.items():
            setattr(layer, name, QuantizedLinear.of(part.weight.T, part.bias, bits))
        for norm, source in ((layer.norm1, given.ln_1), (layer.norm2, given.ln_2)):
            norm.weight, norm.bias = source.weight.detach().float(), source.bias.detach().float()
    stack.norm.weight, stack.norm.bias = (t.detach().float() for t in old.ln_f.parameters())
    stack.wpe = old.wpe


@dataclass(frozen=True, slots=True, eq=False)
class _Space:
    """Workspace for activations as bytes."""

    blocks: Tensor
    scales: Tensor

    @classmethod
    def of(cls, n_rows: int, width: int) -> _Space:
        n_rows = -(-n_rows // TILE) * TILE  # of a prompt, so many are taken at a time
        n_groups = n_rows * width // GROUP
        n_bytes = _library().nightingale_quant_block_bytes()
        # Zeros: what nobody wrote is computed with, and some numbers are slow.
        return cls(torch.zeros(n_groups * n_bytes, dtype=torch.uint8), torch.zeros(n_groups))

    def described(self) -> native.Quantized:
        return native.Quantized(self.blocks.data_ptr(), self.scales.data_ptr())


class _Workspace:
    """Scratch memory of a forward pass, kept for the next: nothing in it outlives one."""

    def __init__(self, config: T3Config, n_rows: int, n_new: int, n_all: int) -> None:
        n, width = n_rows * n_new, config.d_model
        self._n, self._n_scores = n, n_rows * config.n_heads * n_all
        self._n_heads = config.n_heads
        self.x = torch.empty(n, width)
        if not n:
            return
        self._mixed, self._scores = torch.empty(n, 3 * width), torch.empty(self._n_scores)
        self._quantized_x, self._quantized_ffn = _Space.of(n, width), _Space.of(n, config.d_ffn)
        self.described = native.Workspace(
            self.x.data_ptr(), self._mixed.data_ptr(), self._scores.data_ptr(),
            self._quantized_x.described(), self._quantized_ffn.described(),
        )  # fmt: skip

    def holds(self, n_rows: int, n_new: int, n_all: int) -> bool:
        return n_rows * n_new <= self._n and n_rows * self._n_heads * n_all <= self._n_scores


class _Probe:
    """Workspace for what some heads look at, and the way back to who asked."""

    def __init__(self, alignment: Alignment | None, n_all: int) -> None:
        self._alignment = alignment
        heads = alignment.heads if alignment else ()
        self._seen = torch.empty(len(heads), n_all)
        numbers = ctypes.c_int32 * len(heads)
        self.described = native.AttentionProbe(
            len(heads),
            numbers(*(layer for layer, _ in heads)),
            numbers(*(head for _, head in heads)),
            self._seen.data_ptr(),
        )

    def tell(self) -> None:
        if self._alignment is not None:
            for pair, weights in zip(self._alignment.heads, self._seen, strict=True):
                self._alignment.note(pair, weights)


def _described_cache(cache: KVCache) -> native.Cache:
    addresses = ctypes.c_void_p * len(cache.keys)
    return native.Cache(
        addresses(*(native.address(t, torch.bfloat16) for t in cache.keys)),
        addresses(*(native.address(t, torch.bfloat16) for t in cache.values)),
        cache.capacity, cache.length,
    )  # fmt: skip


def _library() -> ctypes.CDLL:
    library = native.library()
    if library is None:
        raise MissingPackageError(
            "packed weights need compiled code, which this installation lacks; install a C "
            "compiler and then reinstall nightingale-tts"
        )
    return library
