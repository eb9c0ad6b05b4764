"""T3 by MLX: the networks here, everything around them shared with the torch backend.

Each request has a slot in a store of keys and values whose shape is fixed, so that what it says
does not depend on who has the others. Where a plan has no slots, each request has a store of its
own. Prompts are embedded by torch on the CPU, and sampler and guard run there: a step gives them
logits and watched attention, in one wait for the device.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import mlx.core as mx
import torch
from torch import Tensor, nn

from nightingale.backends.mlx.arrays import merge_heads, to_mlx, to_torch
from nightingale.backends.mlx.device import MlxPlacement
from nightingale.backends.mlx.transformer import SpeechStep
from nightingale.backends.torch.t3.attention import Alignment, Heads
from nightingale.backends.torch.t3.cache import KVCache
from nightingale.backends.torch.t3.decode import Noise
from nightingale.backends.torch.t3.guard import Guard
from nightingale.backends.torch.t3.model import T3, T3Config, Utterance
from nightingale.backends.torch.t3.prefix import Prefix
from nightingale.backends.torch.t3.sampling import Sampler
from nightingale.core import Options, Plan, T3Prompt
from nightingale.errors import OptionError

CAPACITY_BLOCK = 512  # attention reaches over a request's own length, rounded up to these
N_SPARE = 4  # speech positions beyond the longest speech, in the released tables
N_BITS = {"int8": 8, "int4": 4}


@dataclass(slots=True)
class PromptContext:
    """Reads positions behind those that are cached, causally; what it read is left in the cache."""

    positions: mx.array  # (1, T)
    keys: list[mx.array]  # of each layer, (1 or B, H, n, d_head); replaced while reading
    values: list[mx.array]
    heads: Heads = ()
    looks: dict[tuple[int, int], mx.array] = field(default_factory=dict)

    def attend(self, layer: int, queries: mx.array, keys: mx.array, values: mx.array) -> mx.array:
        if layer < len(self.keys):
            before = self.keys[layer], self.values[layer]
            rows = [mx.broadcast_to(t, (keys.shape[0], *t.shape[1:])) for t in before]
            keys = mx.concatenate([rows[0], keys], axis=2)
            values = mx.concatenate([rows[1], values], axis=2)
            self.keys[layer], self.values[layer] = keys, values
        else:
            self.keys.append(keys)
            self.values.append(values)
        for pair in self.heads:
            if pair[0] == layer:
                self.looks[pair] = look(queries[:1, pair[1], -1], keys[:1, pair[1]], None)
        scale = queries.shape[-1] ** -0.5
        mask = "causal" if queries.shape[2] > 1 else None
        return merge_heads(
            mx.fast.scaled_dot_product_attention(queries, keys, values, scale=scale, mask=mask)
        )


@dataclass(slots=True)
class SlotContext:
    """Writes each row's position where it belongs, and lets it see what is up to there."""

    positions: mx.array  # (B, 1)
    keys: list[mx.array]  # of each layer, (B, H, capacity of the store, d_head)
    values: list[mx.array]
    capacity: int
    n_rows: int  # of a slot
    heads: Heads
    looks: dict[tuple[int, int], mx.array] = field(default_factory=dict)  # (N, capacity)

    def attend(self, layer: int, queries: mx.array, keys: mx.array, values: mx.array) -> mx.array:
        rows, where = mx.arange(len(keys)), self.positions[:, 0]
        self.keys[layer][rows, :, where] = keys[:, :, 0]
        self.values[layer][rows, :, where] = values[:, :, 0]
        all_keys = self.keys[layer][:, :, : self.capacity]
        all_values = self.values[layer][:, :, : self.capacity]
        is_read = mx.arange(self.capacity) <= self.positions  # (B, capacity)
        for pair in self.heads:
            if pair[0] == layer:
                own, head = slice(None, None, self.n_rows), pair[1]
                self.looks[pair] = look(queries[own, head, 0], all_keys[own, head], is_read[own])
        return merge_heads(
            mx.fast.scaled_dot_product_attention(
                queries,
                all_keys,
                all_values,
                scale=queries.shape[-1] ** -0.5,
                mask=is_read[:, None, None],
            )
        )


def look(query: mx.array, keys: mx.array, is_read: mx.array | None) -> mx.array:
    """(N, d_head), (N, T, d_head): how a head of the row with text attends, (N, T)."""
    scores = (keys @ query[:, :, None])[:, :, 0].astype(mx.float32) * query.shape[-1] ** -0.5
    return mx.softmax(scores if is_read is None else mx.where(is_read, scores, -mx.inf), axis=-1)


class SlotStep:
    """One token further for N slots: traced once for each capacity, for all stores."""

    def __init__(self, step: SpeechStep, config: T3Config, n_slots: int, *, compiles: bool) -> None:
        self.speech, self.config, self.n_slots = step, config, n_slots
        self.n_rows = 2 if config.is_llama else 1  # of a slot: guidance has a row without text
        self._compiles = compiles
        self._compiled: dict[int, Any] = {}

    def __call__(
        self, numbers: mx.array, keys: list[mx.array], values: list[mx.array], capacity: int
    ) -> tuple[mx.array, list[mx.array], list[mx.array], list[mx.array]]:
        """(3, N) tokens, indices and lengths -> logits (N, rows, V), attention of the watched
        heads, keys and values."""
        if capacity not in self._compiled:
            forward = functools.partial(self._forward, capacity)
            self._compiled[capacity] = mx.compile(forward) if self._compiles else forward
        return self._compiled[capacity](numbers, keys, values)

    def _forward(
        self, capacity: int, numbers: mx.array, keys: list[mx.array], values: list[mx.array]
    ) -> tuple[mx.array, list[mx.array], list[mx.array], list[mx.array]]:
        (tokens, indices, lengths), heads = numbers, self.config.alignment_heads
        x = mx.repeat(self.speech.embed(tokens, indices), self.n_rows, axis=0)[:, None]
        positions = mx.repeat(lengths, self.n_rows)[:, None]
        context = SlotContext(positions, list(keys), list(values), capacity, self.n_rows, heads)
        logits = self.speech.logits(x, context)
        looks = [context.looks[pair] for pair in heads]
        return logits.reshape(self.n_slots, self.n_rows, -1), looks, context.keys, context.values


class SlotStore:
    """Keys and values of N requests."""

    def __init__(self, step: SlotStep) -> None:
        config, dtype = step.config, step.speech.dtype
        self._step, self._n_rows = step, step.n_rows
        d_head = config.d_model // config.n_heads
        shape = step.n_slots * step.n_rows, config.n_heads, CAPACITY_BLOCK, d_head
        self._keys = [mx.zeros(shape, dtype) for _ in range(config.n_layers)]
        self._values = [mx.zeros(shape, dtype) for _ in range(config.n_layers)]
        self.holders: list[weakref.ref[MlxUtterance] | None] = [None] * step.n_slots

    def free_slot(self) -> int | None:
        """One that nobody holds any more."""
        free = (at for at, held in enumerate(self.holders) if held is None or held() is None)
        return next(free, None)

    def put(self, slot: int, keys: list[mx.array], values: list[mx.array]) -> None:
        """A request moves in with what it has read, (rows, H, n, d_head) of each layer."""
        n, rows = keys[0].shape[2], slice(slot * self._n_rows, (slot + 1) * self._n_rows)
        self.reserve(n + 1)
        for mine, its in ((self._keys, keys), (self._values, values)):
            for layer in range(len(mine)):
                mine[layer][rows, :, :n] = its[layer]
        mx.eval(self._keys, self._values)

    def reserve(self, length: int) -> None:
        """Make room for so many positions in every slot."""
        more = capacity_for(length) - self._keys[0].shape[2]
        if more > 0:
            padding = [(0, 0), (0, 0), (0, more), (0, 0)]
            self._keys = [mx.pad(t, padding) for t in self._keys]
            self._values = [mx.pad(t, padding) for t in self._values]

    def run(
        self, reads: Sequence[tuple[int, int, int]], capacity: int
    ) -> tuple[Tensor, dict[tuple[int, int], Tensor]]:
        """Read in every slot a token, of an index, behind so many positions: logits, (N, rows, V),
        and the attention of watched heads, (N, capacity) each. Slots whose result is not used read
        theirs again later."""
        numbers, heads = mx.array(list(reads)).T, self._step.config.alignment_heads
        keys, values, self._keys, self._values = self._keys, self._values, [], []
        logits, looks, self._keys, self._values = self._step(numbers, keys, values, capacity)
        del keys, values  # so that their memory can be written to
        mx.eval(logits, looks, self._keys, self._values)  # the one wait
        return to_torch(logits), dict(zip(heads, map(to_torch, looks), strict=True))


class MlxUtterance(Utterance):
    """One request under way: its slot, and what was drawn last."""

    def __init__(
        self,
        model: MlxT3,
        text: Sequence[int],
        prefix: Prefix,
        options: Options,
        alignment: Alignment | None,
    ) -> None:
        super().__init__(model, text, prefix, options, alignment)
        self._mlx = model
        self.store: SlotStore
        self.slot_number = -1
        self.length = 0  # positions that were read
        self.token, self.index = 0, 0  # the next to be read

    def first(self) -> Tensor:
        """Voice, text and start in one pass; the guidance row reads positions in place of words."""
        model, alignment = self._mlx, self._alignment
        heads = alignment.heads if alignment is not None else ()
        if alignment is not None:
            alignment.text = self.text_span
        logits, looks, context = model.read_prompt(self._text, self._prefix, heads)
        self.length = context.keys[0].shape[2]
        self.store, self.slot_number = model.place(self, context)
        return self.finish(logits, looks)

    def next(self, token: Tensor, index: int) -> Tensor:
        (logits,) = self._mlx.next_together([self], [(token, index)])
        return logits

    def finish(self, logits: Tensor, looks: dict[tuple[int, int], Tensor]) -> Tensor:
        """(rows, V), and the attention of each watched head, -> guided logits, (V,)"""
        if self._alignment is not None:
            for pair in self._alignment.heads:
                self._alignment.note(pair, looks[pair])
        return self.close(logits)

    @property
    def capacity(self) -> int:
        """Positions that its attention reaches over: its own need, never that of others."""
        return capacity_for(self.length + 1)


def capacity_for(length: int) -> int:
    return -(-length // CAPACITY_BLOCK) * CAPACITY_BLOCK


class MlxT3(T3):
    """Text tokens -> speech tokens, as `T3`, with backbone and head in MLX."""

    is_batchable = True

    def __init__(self, slow: T3, step: SpeechStep, placement: MlxPlacement, n_slots: int) -> None:
        nn.Module.__init__(self)
        self.config = slow.config
        self.cond_enc, self.text_emb, self.speech_emb = (
            slow.cond_enc,
            slow.text_emb,
            slow.speech_emb,
        )
        if self.config.is_llama:
            self.text_pos_emb, self.speech_pos_emb = slow.text_pos_emb, slow.speech_pos_emb
        self._step, self._placement = step, placement
        compiles = placement.compiles
        self._slot_step = SlotStep(step, self.config, max(1, n_slots), compiles=compiles)
        self._stores: list[SlotStore] = []

    def _prepare(
        self,
        text: Sequence[int],
        prefix: Prefix,
        options: Options,
        noise: Noise | None,
        alignment: Alignment | None,
        guard: Guard | None,
    ) -> tuple[Utterance, Sampler, Noise]:
        _, sample, draw = super()._prepare(text, prefix, options, noise, alignment, guard)
        alignment = guard.alignment if guard is not None else alignment
        return MlxUtterance(self, text, prefix, options, alignment), sample, draw

    @torch.inference_mode()
    def prefix(self, prompt: T3Prompt, exaggeration: float) -> Prefix:
        embedded = self.embed_voice(prompt, exaggeration)
        with self._placement.computing():
            context = PromptContext(mx.arange(embedded.shape[1])[None], [], [])
            self._step.tfmr(to_mlx(embedded).astype(self._step.dtype), context)
            mx.eval(context.keys, context.values)
        keys: list[Any] = context.keys
        values: list[Any] = context.values
        return Prefix(KVCache(keys, values, embedded.shape[1]), None)

    @torch.inference_mode()
    def read_prompt(
        self, text: Sequence[int], prefix: Prefix, heads: Heads
    ) -> tuple[Tensor, dict[tuple[int, int], Tensor], PromptContext]:
        """Text and start behind a voice: logits (rows, V), watched attention, what was read."""
        rows = [self.embed_text(text)]
        if self.config.is_llama:
            rows.append(self.text_pos_emb(slice(0, len(text)))[None])
        x = torch.cat([torch.cat((row, self.embed_start()), dim=1) for row in rows])
        n_voice = prefix.voice.length
        keys: list[Any] = list(prefix.voice.keys)
        values: list[Any] = list(prefix.voice.values)
        with self._placement.computing():
            where = mx.arange(n_voice, n_voice + x.shape[1])[None]
            context = PromptContext(where, keys, values, heads)
            logits = self._step.logits(to_mlx(x), context)
            mx.eval(logits, context.looks, context.keys, context.values)
            looks = {pair: to_torch(seen)[0] for pair, seen in context.looks.items()}
            return to_torch(logits), looks, context

    @property
    def _cache_itemsize(self) -> int:
        return self._step.dtype.size

    @property
    def step_bytes(self) -> int:
        return self._step.n_bytes

    def place(self, utterance: MlxUtterance, read: PromptContext) -> tuple[SlotStore, int]:
        """A slot for a request and what it has read, until nobody holds it any more."""
        self._stores = [one for one in self._stores if any(it and it() for it in one.holders)]
        with self._placement.computing():
            for store in self._stores:
                slot = store.free_slot()
                if slot is not None:
                    break
            else:
                store, slot = SlotStore(self._slot_step), 0
                self._stores.append(store)
            store.put(slot, read.keys, read.values)
        store.holders[slot] = weakref.ref(utterance)
        return store, slot

    @torch.inference_mode()
    def next_together(
        self, utterances: Sequence[Utterance], tokens: Sequence[tuple[Tensor, int]]
    ) -> list[Tensor]:
        """`Utterance.next` of each: one pass for those that share a store and a capacity."""
        own = [one for one in utterances if isinstance(one, MlxUtterance)]
        self._check_length(max(index for _, index in tokens))
        for one, (token, index) in zip(own, tokens, strict=True):
            one.token, one.index = int(token), index
        made: dict[int, Tensor] = {}
        for store, group in _groups(own):
            made |= self._run(store, group)
        return [made[id(one)] for one in own]

    def _check_length(self, index: int) -> None:
        """MLX reads whatever lies behind the end of a table."""
        config = self.config
        if config.is_llama and index + 1 >= config.max_speech + N_SPARE:
            raise OptionError(
                f"{config.family} speaks at most {config.max_speech + N_SPARE} tokens at once: "
                "split the text"
            )

    def _run(self, store: SlotStore, group: Sequence[MlxUtterance]) -> dict[int, Tensor]:
        held = [ref() if ref is not None else None for ref in store.holders]
        reads = [(one.token, one.index, one.length) if one else (0, 0, 0) for one in held]
        with self._placement.computing():
            store.reserve(max(length for _, _, length in reads) + 1)
            logits, looks = store.run(reads, group[0].capacity)
        made = {}
        for one in group:
            at = one.slot_number
            one.length += 1
            seen = {pair: by_slot[at] for pair, by_slot in looks.items()}
            made[id(one)] = one.finish(logits[at], seen)
        return made


def make_t3(slow: T3, plan: Plan, placement: MlxPlacement) -> MlxT3:
    """A T3 of torch -> the same as a resolved plan wants it. Its layers can be dropped then."""
    with placement.computing():
        step = SpeechStep(slow)
        if plan.t3 == "bf16":
            step.set_dtype(mx.bfloat16)
        elif plan.t3 in N_BITS:
            step.quantize(N_BITS[plan.t3])
        mx.eval(step.parameters())
    return MlxT3(slow, step, placement, plan.slots)


def _groups(utterances: Sequence[MlxUtterance]) -> Iterator[tuple[SlotStore, list[MlxUtterance]]]:
    """Those that one pass can take further."""
    groups: dict[tuple[int, int], list[MlxUtterance]] = {}
    for one in utterances:
        groups.setdefault((id(one.store), one.capacity), []).append(one)
    for group in groups.values():
        yield group[0].store, group
