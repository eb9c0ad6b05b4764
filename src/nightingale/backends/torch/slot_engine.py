"""T3 behind the backend interface where a step has a fixed shape: N requests, one pass.

A request begins by itself, as in `engine`: its prompt is read and its first token drawn. From then
on it lives in a slot of `t3/slots`. If there are more requests than slots, the one that was not
computed for the longest time is swapped out. What a request says is the same in any slot, beside
any other.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import torch
from torch import Tensor

from nightingale.backends.base import TokenEvent
from nightingale.backends.torch.engine import Live, TorchTokenEngine
from nightingale.backends.torch.t3.cache import KVCache
from nightingale.backends.torch.t3.model import T3
from nightingale.backends.torch.t3.slots import CAPACITY_BLOCK, FREE, N_AHEAD, SlotStep
from nightingale.core import END_OF_SPEECH, Options
from nightingale.noise import NoiseStream, exponential

Run = Callable[[int], Tensor]  # a capacity -> what `SlotStep.forward` gives


@dataclass(frozen=True, slots=True, eq=False)
class _SwappedOut:
    """What a slot holds, elsewhere on the device."""

    cache: KVCache
    state: Tensor
    seen: Tensor


@dataclass(slots=True, eq=False)
class _SlotRequest:
    """A request that has begun, in a slot or swapped out."""

    number: int
    options: Options
    forced: Sequence[int]
    fixed: list[int]
    params: list[float]
    is_guarded: bool
    length: int  # positions that were read
    n_tokens: int
    swapped_out: _SwappedOut | None
    slot: int = -1
    used: int = 0  # the step in which it was computed last

    @property
    def capacity(self) -> int:
        """Positions that its attention reaches over: its own need, never that of others."""
        return (self.length // CAPACITY_BLOCK + 1) * CAPACITY_BLOCK


class SlotTokenEngine(TorchTokenEngine):
    """Text tokens -> speech tokens, N requests in a pass of fixed shape."""

    def __init__(
        self, t3: T3, n_slots: int, wrap: Callable[[SlotStep], Run] = lambda it: it
    ) -> None:
        """`wrap`: compiles or captures the step."""
        super().__init__(t3)
        self._slots, self._wrap = SlotStep(t3, n_slots), wrap
        self._run = wrap(self._slots)
        self._requests: dict[int, _SlotRequest] = {}
        self._in_slot: list[_SlotRequest | None] = [None] * n_slots
        self._active = [False] * n_slots
        self._n_steps = 0

    def __len__(self) -> int:
        return len(self._live) + len(self._requests)

    @torch.inference_mode()
    def step(self, numbers: Collection[int]) -> list[TokenEvent]:
        known = [self._requests.get(number) for number in numbers]
        requests = sorted((it for it in known if it is not None), key=lambda it: it.capacity)
        begun = set(numbers) - {it.number for it in requests}
        events = {number: self._begin(number) for number in numbers if number in begun}
        for capacity, group in groupby(requests, key=lambda it: it.capacity):
            members = list(group)
            for at in range(0, len(members), self._slots.n_slots):
                some = members[at : at + self._slots.n_slots]
                events |= {event.number: event for event in self._together(some, capacity)}
        return [events[number] for number in numbers]

    def cancel(self, number: int) -> None:
        super().cancel(number)
        self._requests.pop(number, None)  # its slot is taken when another needs one

    def _begin(self, number: int) -> TokenEvent:
        """Prompt and first token, as without slots; then it moves."""
        live, (event,) = self._live[number], super().step((number,))
        if self._live.pop(number, None) is not None:
            self._requests[number] = _moved(live)
        return event

    def _together(self, members: Sequence[_SlotRequest], capacity: int) -> list[TokenEvent]:
        """One token further, for at most as many as there are slots."""
        self._n_steps += 1
        for request in members:
            request.used = self._n_steps
        for request in members:
            if request.slot < 0:
                self._place(request)
            elif request.n_tokens % N_AHEAD == 0:
                self._look_ahead(request)
        self._reserve()
        self._activate([request.slot for request in members])
        drawn = self._run(capacity).cpu().tolist()  # the one wait for the device
        return [self._event(request, *drawn[request.slot]) for request in members]

    def _event(self, request: _SlotRequest, token: int, place: int, is_said: int) -> TokenEvent:
        request.length += 1
        request.n_tokens += 1
        is_end = token == END_OF_SPEECH
        is_last = is_end or request.n_tokens == request.options.max_tokens
        if is_last:
            self.cancel(request.number)
        position = place if request.is_guarded else None
        return TokenEvent(request.number, token, position, is_last, bool(is_said) or not is_end)

    def _place(self, request: _SlotRequest) -> None:
        """Into a free slot, or that of whoever was not computed for the longest time."""
        slot = min(range(self._slots.n_slots), key=self._last_used)
        if (before := self._in_slot[slot]) is not None:
            before.swapped_out = _SwappedOut(*self._slots.take(slot, before.length))
            before.slot = -1
        swapped_out, slots = request.swapped_out, self._slots
        assert swapped_out is not None
        request.slot, request.swapped_out, self._in_slot[slot] = slot, None, request
        self._reserve()
        slots.put(slot, swapped_out.cache, swapped_out.state, swapped_out.seen)
        slots.fixed[slot] = torch.tensor(request.fixed)
        slots.params[slot] = torch.tensor(request.params)
        self._look_ahead(request)

    def _last_used(self, slot: int) -> int:
        request = self._in_slot[slot]
        if request is not None and request.number not in self._requests:  # it has ended
            request = self._in_slot[slot] = None
        return request.used if request else 0

    def _reserve(self) -> None:
        """The next position of every request, computed now or not, must lie in the store."""
        if self._slots.reserve(max(it.capacity for it in self._in_slot if it is not None)):
            self._run = self._wrap(self._slots)  # what was captured knows the old addresses

    def _look_ahead(self, request: _SlotRequest) -> None:
        """Put there the noise, and what is forced, of a block of tokens."""
        first = request.n_tokens // N_AHEAD * N_AHEAD
        n_speech, seed = self.t3.config.n_speech, request.options.seed
        block = [exponential(seed, NoiseStream.TOKENS, first + n, n_speech) for n in range(N_AHEAD)]
        forced = list(request.forced[first : first + N_AHEAD])
        self._slots.noise[request.slot] = torch.from_numpy(np.stack(block))
        self._slots.forced[request.slot] = torch.tensor(forced + [FREE] * (N_AHEAD - len(forced)))

    def _activate(self, slots: Collection[int]) -> None:
        wanted = [slot in slots for slot in range(self._slots.n_slots)]
        if wanted != self._active:
            self._slots.active.copy_(torch.tensor(wanted))
            self._active = wanted


def _moved(live: Live) -> _SlotRequest:
    """Of a request whose first token was drawn."""
    options, guard, sampler = live.request.options, live.guard, live.sampler
    cache, _ = live.utterance.slot
    counts = guard.counts if guard else (0, 0, 0)
    assert sampler.seen is not None
    home = sampler.seen.device
    state = torch.tensor([cache.length, 1, int(sampler.token), *counts], device=home)
    return _SlotRequest(
        live.number,
        options,
        live.request.forced,
        fixed=[*live.utterance.text_span, int(guard is not None), options.top_k],
        params=[
            options.cfg_weight,
            options.repetition_penalty,
            options.temperature,
            options.min_p,
            options.top_p,
            guard.sure if guard else 1.0,
        ],
        is_guarded=guard is not None,
        length=cache.length,
        n_tokens=1,
        swapped_out=_SwappedOut(cache, state, sampler.seen),
    )
