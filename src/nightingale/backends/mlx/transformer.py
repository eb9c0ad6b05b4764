"""The two backbones of T3, speech embeddings and head: the networks of every step.

Parameter names are those of the released files. Knows nothing of text, slots or sampling.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import mlx.core as mx
from mlx import nn
from mlx.utils import tree_flatten
from torch import Tensor

from nightingale.backends.mlx.arrays import split_heads, to_mlx
from nightingale.backends.torch.t3 import gpt2, llama
from nightingale.backends.torch.t3.model import T3, T3Config
from nightingale.errors import LayoutError

_IN_OUT = ("c_attn.weight", "c_proj.weight", "c_fc.weight")  # GPT-2's are stored (in, out)
GROUP_SIZES = (64, 32)  # weights that share a scale and an offset: the first that fits


class Attends(Protocol):
    """What layers ask of whoever keeps keys and values."""

    positions: mx.array  # (B, T)

    def attend(self, layer: int, queries: mx.array, keys: mx.array, values: mx.array) -> mx.array:
        """(B, H, T, d_head) in, (B, T, D) out"""


class Llama(nn.Module):
    """English, Multilingual and Fledgling: rotary positions, gated units."""

    def __init__(self, config: T3Config, cos: mx.array, sin: mx.array) -> None:
        super().__init__()
        self.layers = [LlamaLayer(index, config) for index in range(config.n_layers)]
        self.norm = nn.RMSNorm(config.d_model, llama.NORM_EPS)
        self._cos, self._sin = cos, sin  # (positions, d_head)

    def __call__(self, x: mx.array, context: Attends) -> mx.array:
        """(B, T, D) -> (B, T, D), normed"""
        where = context.positions
        rotation = (self._cos[where][:, None], self._sin[where][:, None])  # (B, 1, T, d_head)
        rotation = (rotation[0].astype(x.dtype), rotation[1].astype(x.dtype))
        for layer in self.layers:
            x = layer(x, rotation, context)
        return self.norm(x)


class LlamaLayer(nn.Module):
    def __init__(self, index: int, config: T3Config) -> None:
        super().__init__()
        self.self_attn = LlamaAttention(index, config)
        self.mlp = GatedFeedForward(config.d_model, config.d_ffn)
        self.input_layernorm = nn.RMSNorm(config.d_model, llama.NORM_EPS)
        self.post_attention_layernorm = nn.RMSNorm(config.d_model, llama.NORM_EPS)

    def __call__(
        self, x: mx.array, rotation: tuple[mx.array, mx.array], context: Attends
    ) -> mx.array:
        x = x + self.self_attn(self.input_layernorm(x), rotation, context)
        return x + self.mlp(self.post_attention_layernorm(x))


class LlamaAttention(nn.Module):
    def __init__(self, index: int, config: T3Config) -> None:
        super().__init__()
        width = config.d_model
        self._index, self._n_heads = index, config.n_heads
        self.q_proj = nn.Linear(width, width, bias=False)
        self.k_proj = nn.Linear(width, width, bias=False)
        self.v_proj = nn.Linear(width, width, bias=False)
        self.o_proj = nn.Linear(width, width, bias=False)

    def __call__(
        self, x: mx.array, rotation: tuple[mx.array, mx.array], context: Attends
    ) -> mx.array:
        queries = rotate(split_heads(self.q_proj(x), self._n_heads), *rotation)
        keys = rotate(split_heads(self.k_proj(x), self._n_heads), *rotation)
        values = split_heads(self.v_proj(x), self._n_heads)
        return self.o_proj(context.attend(self._index, queries, keys, values))


class GatedFeedForward(nn.Module):
    def __init__(self, d_model: int, d_ffn: int) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(d_model, d_ffn, bias=False)
        self.up_proj = nn.Linear(d_model, d_ffn, bias=False)
        self.down_proj = nn.Linear(d_ffn, d_model, bias=False)

    def __call__(self, x: mx.array) -> mx.array:
        return self.down_proj(nn.silu(self.gate_proj(x)) * self.up_proj(x))


class Gpt2(nn.Module):
    """Turbo and Nano: learned positions."""

    def __init__(self, config: T3Config, n_positions: int) -> None:
        super().__init__()
        self.wpe = nn.Embedding(n_positions, config.d_model)
        self.h = [Gpt2Layer(index, config) for index in range(config.n_layers)]
        self.ln_f = nn.LayerNorm(config.d_model, gpt2.NORM_EPS)

    def __call__(self, x: mx.array, context: Attends) -> mx.array:
        x = x + self.wpe(context.positions)
        for layer in self.h:
            x = layer(x, context)
        return self.ln_f(x)


class Gpt2Layer(nn.Module):
    def __init__(self, index: int, config: T3Config) -> None:
        super().__init__()
        self.ln_1 = nn.LayerNorm(config.d_model, gpt2.NORM_EPS)
        self.attn = Gpt2Attention(index, config)
        self.ln_2 = nn.LayerNorm(config.d_model, gpt2.NORM_EPS)
        self.mlp = FeedForward(config.d_model, config.d_ffn)

    def __call__(self, x: mx.array, context: Attends) -> mx.array:
        x = x + self.attn(self.ln_1(x), context)
        return x + self.mlp(self.ln_2(x))


class Gpt2Attention(nn.Module):
    def __init__(self, index: int, config: T3Config) -> None:
        super().__init__()
        self._index, self._n_heads = index, config.n_heads
        self.c_attn = nn.Linear(config.d_model, 3 * config.d_model)
        self.c_proj = nn.Linear(config.d_model, config.d_model)

    def __call__(self, x: mx.array, context: Attends) -> mx.array:
        parts = mx.split(self.c_attn(x), 3, axis=-1)
        queries, keys, values = (split_heads(part, self._n_heads) for part in parts)
        return self.c_proj(context.attend(self._index, queries, keys, values))


class FeedForward(nn.Module):
    def __init__(self, d_model: int, d_ffn: int) -> None:
        super().__init__()
        self.c_fc = nn.Linear(d_model, d_ffn)
        self.c_proj = nn.Linear(d_ffn, d_model)

    def __call__(self, x: mx.array) -> mx.array:
        return self.c_proj(nn.gelu_approx(self.c_fc(x)))


class SpeechStep(nn.Module):
    """Speech tokens in, logits of the next ones out."""

    def __init__(self, t3: T3) -> None:
        """With the weights of a T3 of torch."""
        super().__init__()
        config = t3.config
        if isinstance(t3.tfmr, llama.Llama):
            self.tfmr = Llama(config, to_mlx(t3.tfmr.cos), to_mlx(t3.tfmr.sin))
            self.speech_pos_emb = {"emb": nn.Embedding(config.max_speech + 4, config.d_model)}
        else:
            self.tfmr = Gpt2(config, len(t3.tfmr.wpe.weight))
        self.speech_emb = nn.Embedding(config.n_speech, config.d_model)
        self.speech_head = nn.Linear(config.d_model, config.n_speech, bias=not config.is_llama)
        self._is_llama, self._widths = config.is_llama, (config.d_model, config.d_ffn)
        self.load_weights(list(_own(t3.state_dict())), strict=True)
        mx.eval(self.parameters())

    def embed(self, tokens: mx.array, indices: mx.array) -> mx.array:
        """(N,) tokens, counted from 0 behind the start -> (N, D)"""
        x = self.speech_emb(tokens)
        return x + self.speech_pos_emb["emb"](indices + 1) if self._is_llama else x

    def logits(self, x: mx.array, context: Attends) -> mx.array:
        """(B, T, D) -> (B, V) of the last position, in 32 bits"""
        hidden = self.tfmr(x.astype(self.dtype), context)
        return self.speech_head(hidden[:, -1]).astype(mx.float32)

    @property
    def n_bytes(self) -> int:
        """Of all weights that a step reads: not of embeddings, of which it reads a row."""
        modules = (self.tfmr, self.speech_head)
        arrays = (a for it in modules for _, a in tree_flatten(it.parameters()))
        return sum(array.nbytes for array in arrays)

    def quantize(self, n_bits: int) -> None:
        """Weights of the layers as whole numbers of so many bits, a scale and an offset for every
        few of them; the head, on which every token depends, in 8 bits."""
        widths = self._widths
        fitting = (n for n in GROUP_SIZES if not any(width % n for width in widths))
        group = next(fitting, None)
        if group is None:
            raise LayoutError(
                f"layers {widths[0]} and {widths[1]} wide cannot be packed: they must be multiples "
                f"of {GROUP_SIZES[-1]}"
            )

        def bits_of(name: str, module: nn.Module) -> bool | dict[str, int]:
            if not isinstance(module, nn.Linear):
                return False
            return {"group_size": group, "bits": 8 if name == "speech_head" else n_bits}

        nn.quantize(self, class_predicate=bits_of)

    @property
    def dtype(self) -> mx.Dtype:
        """Of activations, keys and values."""
        return self.speech_emb.weight.dtype


def rotate(x: mx.array, cos: mx.array, sin: mx.array) -> mx.array:
    """As `llama.rotate`: the first half of `sin` is negative."""
    left, right = mx.split(x, 2, axis=-1)
    return x * cos + mx.concatenate([right, left], axis=-1) * sin


def _own(tensors: dict[str, Tensor]) -> Iterator[tuple[str, mx.array]]:
    """What a step needs of a T3, as MLX stores it; the rest makes prompts."""
    for name, tensor in tensors.items():
        if name.startswith(("tfmr.", "speech_")):
            array = to_mlx(tensor)
            yield name, array.T if name.endswith(_IN_OUT) else array
