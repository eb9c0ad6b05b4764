"""One step of T3 for N requests at once, every shape fixed: eager, compiled or captured alike.

A slot is the place of one request. Its keys and values, where it stands, what it has said, its way
to draw and its guard are numbers on the device; noise is put there ahead of time. So a step asks
the host for nothing and gives it one small tensor. Slots that are not active stay as they are.

A row's numbers depend on its slot alone, and on N: never on what the other slots hold.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nightingale.backends.torch.t3.attention import Heads
from nightingale.backends.torch.t3.cache import KVCache
from nightingale.backends.torch.t3.guard import JUMP, LINGER, PATIENCE, STUCK, TAIL
from nightingale.backends.torch.t3.model import T3
from nightingale.backends.torch.t3.sampling import keep_min_p, keep_top_p, penalize, pick
from nightingale.core import END_OF_SPEECH

CAPACITY_BLOCK = 512  # attention reaches over a request's own length, rounded up to these
N_AHEAD = 32  # tokens for which noise lies ready
FREE = -1  # no token is forced


class SlotState(NamedTuple):
    """What changes with every token of a slot, (N,) each."""

    length: Tensor  # positions that were read
    n_tokens: Tensor  # that were drawn
    token: Tensor  # drawn last
    place: Tensor  # the text token that is being said
    n_still: Tensor  # tokens since it moved
    n_sure: Tensor  # tokens for which the heads were sure


class SlotConfig(NamedTuple):
    """What does not, (N,) each: whole numbers."""

    text_start: Tensor  # positions of the text
    text_end: Tensor
    is_guarded: Tensor
    top_k: Tensor


class SamplingParams(NamedTuple):
    """And other numbers, (N, 1) each."""

    cfg_weight: Tensor
    repetition_penalty: Tensor
    temperature: Tensor
    min_p: Tensor
    top_p: Tensor
    sure: Tensor


class SlotStep(nn.Module):
    """The step, and everything that it changes."""

    def __init__(self, t3: T3, n_slots: int) -> None:
        super().__init__()
        config, like = t3.config, t3.speech_emb.weight
        self.t3, self.n_slots = t3, n_slots
        self.n_rows = 2 if config.is_llama else 1  # of a slot: guidance has a row without text
        shape = config.n_layers, n_slots * self.n_rows, config.n_heads, CAPACITY_BLOCK
        self.keys = like.new_zeros(*shape, config.d_model // config.n_heads)
        self.values = torch.zeros_like(self.keys)  # (layers, B, heads, capacity, d_head)
        home, n_speech = like.device, config.n_speech
        self.active = torch.zeros(n_slots, dtype=torch.bool, device=home)
        self.state = torch.zeros(n_slots, len(SlotState._fields), dtype=torch.int64, device=home)
        self.fixed = torch.zeros(n_slots, len(SlotConfig._fields), dtype=torch.int64, device=home)
        self.params = torch.ones(n_slots, len(SamplingParams._fields), device=home)
        self.seen = torch.zeros(n_slots, n_speech, dtype=torch.bool, device=home)
        self.noise = torch.ones(n_slots, N_AHEAD, n_speech, device=home)
        self.forced = torch.full((n_slots, N_AHEAD), FREE, device=home)
        self.slots = torch.arange(n_slots, device=home)
        self.rows = torch.arange(n_slots * self.n_rows, device=home)

    @property
    def capacity(self) -> int:
        """Positions that a slot can hold."""
        return self.keys.shape[3]

    def reserve(self, capacity: int) -> bool:
        """Make room for so many positions in every slot; whether everything had to move."""
        if capacity <= self.capacity:
            return False
        more = capacity - self.capacity
        self.keys = F.pad(self.keys, (0, 0, 0, more))
        self.values = F.pad(self.values, (0, 0, 0, more))
        return True

    def put(self, slot: int, cache: KVCache, state: Tensor, seen: Tensor) -> None:
        """A request moves in."""
        rows, n = self._rows_of(slot), cache.length
        for layer in range(len(self.keys)):
            self.keys[layer, rows, :, :n] = cache.keys[layer][:, :, :n]
            self.values[layer, rows, :, :n] = cache.values[layer][:, :, :n]
        self.state[slot] = state
        self.seen[slot] = seen

    def take(self, slot: int, length: int) -> tuple[KVCache, Tensor, Tensor]:
        """What `put` needs to go on later."""
        rows = self._rows_of(slot)
        keys, values = (t[:, rows, :, :length].clone() for t in (self.keys, self.values))
        cache = KVCache(list(keys), list(values), length)
        return cache, self.state[slot].clone(), self.seen[slot].clone()

    def _rows_of(self, slot: int) -> slice:
        return slice(slot * self.n_rows, (slot + 1) * self.n_rows)

    @torch.inference_mode()
    def forward(self, capacity: int) -> Tensor:
        """A token for every active slot, all within a capacity: (N, 3) token, place, is said."""
        t3, state = self.t3, SlotState(*self.state.unbind(1))
        fixed = SlotConfig(*self.fixed.unbind(1))
        params = SamplingParams(*self.params[:, :, None].unbind(1))
        x = t3.speech_emb(state.token)  # (N, D)
        if t3.config.is_llama:
            x = x + t3.speech_pos_emb(state.n_tokens)
        x = x[:, None].expand(-1, self.n_rows, -1).reshape(len(self.rows), 1, -1)
        context = self._context(state.length, capacity)
        hidden = t3.tfmr.read_at(x, context.positions, context)[:, 0]
        logits = t3.speech_head(hidden).float().unflatten(0, (self.n_slots, self.n_rows))
        logits = self._guided(logits, params.cfg_weight)
        ahead = state.n_tokens % N_AHEAD
        place, n_still, n_sure = state.place, state.n_still, state.n_sure
        is_over = is_said = None
        if context.looks:
            looks = [context.looks[pair] for pair in context.heads]
            guard = _Guarded.of(looks, state, fixed, params.sure[:, 0])
            place, n_still, n_sure = guard.place, guard.n_still, guard.n_sure
            is_over, is_said = guard.is_over, guard.is_said
            end = logits[:, END_OF_SPEECH]
            end.copy_(end.masked_fill(guard.is_under_way, -torch.inf))
        token = self._draw(logits, self.noise[self.slots, ahead], params, fixed.top_k)
        if is_over is not None:
            token = token.masked_fill(is_over, END_OF_SPEECH)
        forced = self.forced[self.slots, ahead]
        token = torch.where(forced == FREE, token, forced)
        after = SlotState(state.length + 1, state.n_tokens + 1, token, place, n_still, n_sure)
        self._keep(after)
        said = torch.ones_like(token) if is_said is None else is_said.long()
        return torch.stack((token, place, said), dim=1)

    def _context(self, lengths: Tensor, capacity: int) -> _SlotContext:
        # A request that has ended may have left a slot that is full to the last position.
        lengths = lengths.clamp(max=self.capacity - 1)
        positions = lengths[:, None].expand(-1, self.n_rows).flatten()  # (B,)
        where = torch.arange(capacity, device=positions.device)
        mask = (where <= positions[:, None])[:, None, None]  # (B, 1, 1, capacity)
        heads = self.t3.config.alignment_heads
        return _SlotContext(
            self.keys[:, :, :, :capacity], self.values[:, :, :, :capacity], self.keys, self.values,
            self.rows, positions, mask, self.n_rows, heads,
        )  # fmt: skip

    @staticmethod
    def _guided(logits: Tensor, weight: Tensor) -> Tensor:
        """(N, rows, V) -> (N, V)"""
        with_text = logits[:, 0]
        if logits.shape[1] == 1:
            return with_text
        return with_text + weight * (with_text - logits[:, 1])

    def _draw(self, logits: Tensor, noise: Tensor, params: SamplingParams, top_k: Tensor) -> Tensor:
        """As `llama_sampler` and `gpt2_sampler` do, each slot in its own way."""
        is_greedy = params.temperature == 0
        temperature = torch.where(is_greedy, 1.0, params.temperature)
        penalized = penalize(logits, self.seen, params.repetition_penalty)
        most_likely = penalized.argmax(-1)
        if self.t3.config.is_llama:
            kept = keep_min_p(penalized / temperature, params.min_p)
            kept = keep_top_p(kept, params.top_p)
        else:
            kept = _keep_top_k(logits / temperature, top_k)
            kept = keep_top_p(kept, params.top_p)
            kept = penalize(kept, self.seen, params.repetition_penalty)
        return torch.where(is_greedy[:, 0], most_likely, pick(kept, noise))

    def _keep(self, after: SlotState) -> None:
        active = self.active[:, None]
        token = after.token[:, None]
        self.seen.scatter_(1, token, self.seen.gather(1, token) | active)
        self.state.copy_(torch.where(active, torch.stack(after, dim=1), self.state))


def _keep_top_k(logits: Tensor, top_k: Tensor) -> Tensor:
    """`sampling.keep_top_k` with a number for each row, (N,); 0 keeps all."""
    n = logits.shape[-1]
    last = (n - torch.where(top_k == 0, n, top_k)).clamp(min=0)
    least = logits.sort(-1).values.gather(-1, last[:, None])
    return logits.masked_fill(logits < least, -torch.inf)


@dataclass(slots=True)
class _SlotContext:
    """Writes each row's position where it belongs, and lets it see what is up to there."""

    keys: Tensor  # (layers, B, heads, capacity, d_head)
    values: Tensor
    all_keys: Tensor  # as far as other slots need it
    all_values: Tensor
    rows: Tensor  # (B,)
    positions: Tensor  # (B,)
    mask: Tensor  # (B, 1, 1, capacity)
    n_rows: int
    heads: Heads
    looks: dict[tuple[int, int], Tensor] = field(default_factory=dict)  # (N, capacity) of each head

    def attend(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        self.all_keys[layer][self.rows, :, self.positions] = keys[:, :, 0]
        self.all_values[layer][self.rows, :, self.positions] = values[:, :, 0]
        for pair in self.heads:
            if pair[0] == layer:
                with_text = slice(None, None, self.n_rows), pair[1]
                self.looks[pair] = self._look(queries[with_text][:, 0], self.keys[layer][with_text])
        out = F.scaled_dot_product_attention(
            queries, self.keys[layer], self.values[layer], attn_mask=self.mask
        )
        return out.transpose(1, 2).flatten(2)

    def _look(self, query: Tensor, keys: Tensor) -> Tensor:
        """(N, d_head), (N, capacity, d_head): how a head of the row with text attends."""
        scores = (keys @ query[:, :, None])[:, :, 0] / query.shape[-1] ** 0.5
        hidden = ~self.mask[:: self.n_rows, 0, 0]
        return scores.float().masked_fill(hidden, -torch.inf).softmax(-1)


@dataclass(frozen=True, slots=True)
class _Guarded:
    """`guard.Guard`, one step further in every slot; where it is off, it changes nothing."""

    place: Tensor
    n_still: Tensor
    n_sure: Tensor
    is_said: Tensor
    is_under_way: Tensor
    is_over: Tensor

    @classmethod
    def of(cls, looks: list[Tensor], state: SlotState, fixed: SlotConfig, sure: Tensor) -> _Guarded:
        row = torch.stack(looks).mean(0)  # (N, capacity)
        where = torch.arange(row.shape[1], device=row.device)
        is_text = (where >= fixed.text_start[:, None]) & (where < fixed.text_end[:, None])
        most, found = row.masked_fill(~is_text, -1.0).max(-1)
        is_seen = most >= sure
        step = found - fixed.text_start - state.place
        is_moving = is_seen & (step > 0) & (step <= JUMP)
        place = torch.where(is_moving, state.place + step, state.place)
        n_still = (state.n_still + 1).masked_fill(is_moving, 0)
        n_sure = state.n_sure + is_seen
        is_sure = 2 * n_sure >= state.n_tokens + 1
        is_at_end = place >= fixed.text_end - fixed.text_start - TAIL
        is_on = fixed.is_guarded.bool()
        patience = torch.where(is_at_end, LINGER, STUCK)
        return cls(
            place,
            n_still,
            n_sure,
            ~is_sure | is_at_end | ~is_on,
            is_sure & ~is_at_end & (n_still < PATIENCE) & is_on,
            is_sure & (n_still >= patience) & is_on,
        )
