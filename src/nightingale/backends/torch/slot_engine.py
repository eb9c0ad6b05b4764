"""T3 behind the backend interface where a step has a fixed shape: N requests, one pass.

A request begins by itself, as in `engine`: its prompt is read and its first token drawn. From then
on it lives in a slot of `t3/slots`. If there are more requests than slots, the one that was not
computed for the longest time is parked. What a request says is the same in any slot, beside any
other.
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
from nightingale.backends.torch.t3.slots import FREE, N_AHEAD, ROOM, SlotStep
from nightingale.core import END_OF_SPEECH, Options
from nightingale.noise import NoiseStream, exponential

Run = Callable[[int], Tensor]  # a room -> what `SlotStep.forward` gives


@dataclass(frozen=True, slots=True, eq=False)
class _Parked:
    """What a slot holds, elsewhere on the device."""

    cache: KVCache
    state: Tensor
    seen: Tensor


@dataclass(slots=True, eq=False)
class _Tenant:
    """A request that has begun, in a slot or parked."""

    number: int
    options: Options
    forced: Sequence[int]
    fixed: list[int]
    levels: list[float]
    is_guarded: bool
    length: int  # positions that were read
    n_tokens: int
    parked: _Parked | None
    slot: int = -1
    used: int = 0  # the step in which it was computed last

    @property
    def room(self) -> int:
        """Positions that its attention reaches over: its own need, never that of others."""
        return (self.length // ROOM + 1) * ROOM


class SlotTokenEngine(TorchTokenEngine):
    """Text tokens -> speech tokens, N requests in a pass of fixed shape."""

    def __init__(
        self, t3: T3, n_slots: int, wrap: Callable[[SlotStep], Run] = lambda it: it
    ) -> None:
        """`wrap`: compiles or captures the step."""
        super().__init__(t3)
        self._slots, self._wrap = SlotStep(t3, n_slots), wrap
        self._run = wrap(self._slots)
        self._tenants: dict[int, _Tenant] = {}
        self._in_slot: list[_Tenant | None] = [None] * n_slots
        self._active = [False] * n_slots
        self._n_steps = 0

    def __len__(self) -> int:
        return len(self._live) + len(self._tenants)

    @torch.inference_mode()
    def step(self, numbers: Collection[int]) -> list[TokenEvent]:
        known = [self._tenants.get(number) for number in numbers]
        tenants = sorted((it for it in known if it is not None), key=lambda it: it.room)
        begun = set(numbers) - {it.number for it in tenants}
        events = {number: self._begin(number) for number in numbers if number in begun}
        for room, group in groupby(tenants, key=lambda it: it.room):
            members = list(group)
            for at in range(0, len(members), self._slots.n_slots):
                some = members[at : at + self._slots.n_slots]
                events |= {event.number: event for event in self._together(some, room)}
        return [events[number] for number in numbers]

    def cancel(self, number: int) -> None:
        super().cancel(number)
        self._tenants.pop(number, None)  # its slot is taken when another needs one

    def _begin(self, number: int) -> TokenEvent:
        """Prompt and first token, as without slots; then it moves."""
        live, (event,) = self._live[number], super().step((number,))
        if self._live.pop(number, None) is not None:
            self._tenants[number] = _moved(live)
        return event

    def _together(self, members: Sequence[_Tenant], room: int) -> list[TokenEvent]:
        """One token further, for at most as many as there are slots."""
        self._n_steps += 1
        for tenant in members:
            tenant.used = self._n_steps
        for tenant in members:
            if tenant.slot < 0:
                self._place(tenant)
            elif tenant.n_tokens % N_AHEAD == 0:
                self._look_ahead(tenant)
        self._reserve()
        self._activate([tenant.slot for tenant in members])
        drawn = self._run(room).cpu().tolist()  # the one wait for the device
        return [self._event(tenant, *drawn[tenant.slot]) for tenant in members]

    def _event(self, tenant: _Tenant, token: int, place: int, is_said: int) -> TokenEvent:
        tenant.length += 1
        tenant.n_tokens += 1
        is_end = token == END_OF_SPEECH
        is_last = is_end or tenant.n_tokens == tenant.options.max_tokens
        if is_last:
            self.cancel(tenant.number)
        position = place if tenant.is_guarded else None
        return TokenEvent(tenant.number, token, position, is_last, bool(is_said) or not is_end)

    def _place(self, tenant: _Tenant) -> None:
        """Into a free slot, or that of whoever was not computed for the longest time."""
        slot = min(range(self._slots.n_slots), key=self._last_used)
        if (before := self._in_slot[slot]) is not None:
            before.parked = _Parked(*self._slots.take(slot, before.length))
            before.slot = -1
        parked, slots = tenant.parked, self._slots
        assert parked is not None
        tenant.slot, tenant.parked, self._in_slot[slot] = slot, None, tenant
        self._reserve()
        slots.put(slot, parked.cache, parked.state, parked.seen)
        slots.fixed[slot] = torch.tensor(tenant.fixed)
        slots.levels[slot] = torch.tensor(tenant.levels)
        self._look_ahead(tenant)

    def _last_used(self, slot: int) -> int:
        tenant = self._in_slot[slot]
        if tenant is not None and tenant.number not in self._tenants:  # it has ended
            tenant = self._in_slot[slot] = None
        return tenant.used if tenant else 0

    def _reserve(self) -> None:
        """The next position of every tenant, computed now or not, must lie in the store."""
        if self._slots.reserve(max(it.room for it in self._in_slot if it is not None)):
            self._run = self._wrap(self._slots)  # what was captured knows the old addresses

    def _look_ahead(self, tenant: _Tenant) -> None:
        """Put there the noise, and what is forced, of a block of tokens."""
        first = tenant.n_tokens // N_AHEAD * N_AHEAD
        n_speech, seed = self.t3.config.n_speech, tenant.options.seed
        block = [exponential(seed, NoiseStream.TOKENS, first + n, n_speech) for n in range(N_AHEAD)]
        forced = list(tenant.forced[first : first + N_AHEAD])
        self._slots.noise[tenant.slot] = torch.from_numpy(np.stack(block))
        self._slots.forced[tenant.slot] = torch.tensor(forced + [FREE] * (N_AHEAD - len(forced)))

    def _activate(self, slots: Collection[int]) -> None:
        wanted = [slot in slots for slot in range(self._slots.n_slots)]
        if wanted != self._active:
            self._slots.active.copy_(torch.tensor(wanted))
            self._active = wanted


def _moved(live: Live) -> _Tenant:
    """Of a request whose first token was drawn."""
    options, guard, sampler = live.request.options, live.guard, live.sampler
    cache, _ = live.utterance.slot
    counts = guard.counts if guard else (0, 0, 0)
    assert sampler.seen is not None
    home = sampler.seen.device
    state = torch.tensor([cache.length, 1, int(sampler.token), *counts], device=home)
    return _Tenant(
        live.number,
        options,
        live.request.forced,
        fixed=[*live.utterance.text_span, int(guard is not None), options.top_k],
        levels=[
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
        parked=_Parked(cache, state, sampler.seen),
    )
