"""What the model, the logits processor and the engine share: who is in which row of the batch.

vLLM's rows change with every step; a request is known by its number, and what it has drawn stays
when it is preempted. Knows nothing of vLLM.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from nightingale.backends.torch.t3.decode import SequenceSampler
from nightingale.backends.torch.t3.guard import Guard
from nightingale.core import END_OF_SPEECH

NOT_SPEECH = 1 << 30  # the prompt length of a row that nobody is in: no position is behind it


@dataclass(slots=True, eq=False)
class LiveSequence:
    """A request inside the engine."""

    number: int
    n_prompt: int  # positions: voice, text and start
    cfg_weight: float
    sampler: SequenceSampler
    guard: Guard | None
    error: Exception | None = None

    def draw(self, logits: Tensor, look: Tensor | None) -> int:
        """One more token from guided logits, (V,); `look` is as in `KeyStore.look`."""
        try:
            if self.guard is not None:
                assert look is not None
                first, behind = self.guard.alignment.text
                self.guard.alignment.rows.append(look[:, first:behind])
            return self.sampler.draw(logits)
        except Exception as error:  # this request's, and only its own: it ends, the batch goes on
            self.error = error
            return END_OF_SPEECH


class Batch:
    """The rows of the step that is being computed. For one engine and one thread."""

    def __init__(self) -> None:
        self.live: dict[int, LiveSequence] = {}
        self.rows: dict[int, int] = {}  # row of the batch -> number of the request
        self.last: list[int] = []  # by row: the last position that was read
        self.looks: list[Tensor | None] = []  # by row: attention of the watched heads

    def place(
        self,
        removed: Iterable[int],
        added: Iterable[tuple[int, int]],
        moved: Iterable[tuple[int, int, bool]],
    ) -> None:
        """Rows that became free; (row, number) that came; (from, to, whether it is a swap)."""
        for row in removed:
            self.rows.pop(row, None)
        self.rows |= dict(added)
        for source, target, is_swap in moved:
            one, other = self.rows.pop(source, None), self.rows.pop(target, None)
            if one is not None:
                self.rows[target] = one
            if is_swap and other is not None:
                self.rows[source] = other

    def arrange(self, numbers: Iterable[int | None]) -> None:
        """All rows of the next step at once, in their order; None: a row of nobody."""
        self.rows = {row: number for row, number in enumerate(numbers) if number is not None}

    def sequence(self, row: int) -> LiveSequence | None:
        """Whoever is in this row; None: nobody, or a request that was cancelled."""
        return self.live.get(self.rows.get(row, -1))

    def prompt_lengths(self, n_rows: int, device: torch.device) -> Tensor:
        """(B,)"""
        found = [self.sequence(row) for row in range(n_rows)]
        lengths = [one.n_prompt if one else NOT_SPEECH for one in found]
        return torch.tensor(lengths, dtype=torch.long, device=device)

    def cfg_weights(self, n_rows: int, device: torch.device) -> Tensor:
        """(B, 1)"""
        found = [self.sequence(row) for row in range(n_rows)]
        weights = [[one.cfg_weight if one else 0.0] for one in found]
        return torch.tensor(weights, dtype=torch.float32, device=device).view(n_rows, 1)

    def drawing(self) -> Iterable[tuple[int, LiveSequence]]:
        """The rows that have read everything up to now, and so draw a token in this step.

        The others are in the middle of a prompt, or read again what they lost by preemption.
        """
        for row, last in enumerate(self.last):
            one = self.sequence(row)
            if one is not None and last + 1 == one.n_prompt + one.sampler.n_tokens:
                yield row, one

    def draw(self, logits: Tensor) -> dict[int, int]:
        """A token for each row of (B, V) that draws one."""
        return {row: one.draw(logits[row], self.looks[row]) for row, one in self.drawing()}


def keep_drawn(logits: Tensor, drawn: Mapping[int, int]) -> None:
    """Leave nothing but its token to each row of (B, V) that has drawn one."""
    for row, token in drawn.items():
        logits[row] = -torch.inf
        logits[row, token] = 0.0


class KeyStore:
    """Keys of the watched heads, by the physical slot of vLLM's pages: whoever shares a page, or
    gets one that was cached, finds the keys that belong to it."""

    def __init__(self, n_slots: int, n_heads: int, d_head: int, device: torch.device) -> None:
        self._keys = torch.zeros(n_slots, n_heads, d_head, device=device)
        self._queries: dict[int, Tensor] = {}

    def write(self, head: int, slots: Tensor, keys: Tensor, queries: Tensor) -> None:
        """(N, d_head) of all positions of this step, in their slots, (N,)."""
        self._keys[slots, head] = keys.float()
        self._queries[head] = queries.float()

    def look(self, slots: Tensor, at: int) -> Tensor:
        """How position `at` of this step attends to the slots that it sees: (heads, T)."""
        heads = sorted(self._queries)
        scores = [
            self._keys[slots, head] @ self._queries[head][at] / self._keys.shape[-1] ** 0.5
            for head in heads
        ]
        return torch.stack(scores).softmax(-1)


_BATCHES: dict[int, Batch] = {}


def register(batch: Batch) -> int:
    """A key by which the parts that vLLM makes find the batch of their engine."""
    key = max(_BATCHES, default=0) + 1
    _BATCHES[key] = batch
    return key


def registered(key: int) -> Batch:
    return _BATCHES[key]


def n_registered() -> int:
    return len(_BATCHES)


def unregister(key: int) -> None:
    _BATCHES.pop(key, None)


def slots_of(block_table: Sequence[int] | Tensor, block_size: int, n_positions: int) -> Tensor:
    """The physical slots of the first positions of a request, (T,)."""
    blocks = torch.as_tensor(block_table).long()
    positions = torch.arange(n_positions, device=blocks.device)
    return blocks[positions // block_size] * block_size + positions % block_size
