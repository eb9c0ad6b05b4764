"""T3 behind the backend interface: many requests, each with a cache of its own."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import count

import torch
from torch import Tensor

from nightingale.backends.base import TokenEvent, TokenRequest
from nightingale.backends.torch.t3.decode import SequenceSampler
from nightingale.backends.torch.t3.guard import Guard
from nightingale.backends.torch.t3.model import T3, Utterance
from nightingale.backends.torch.t3.prefix import Prefixes
from nightingale.core import END_OF_SPEECH, T3Prompt
from nightingale.errors import NightingaleError
from nightingale.nn.contention import MONITOR


@dataclass(slots=True, eq=False)
class Live:
    """A request under way."""

    number: int
    request: TokenRequest
    utterance: Utterance
    sampler: SequenceSampler
    guard: Guard | None


class TorchTokenEngine:
    """Text tokens -> speech tokens; requests share a pass through the layers, but for the first."""

    def __init__(self, t3: T3) -> None:
        self.t3 = t3
        self._prefixes = Prefixes(t3.prefix)
        self._numbers = count(1)
        self._live: dict[int, Live] = {}

    def __len__(self) -> int:
        return len(self._live)

    @torch.inference_mode()
    def add(self, request: TokenRequest) -> int:
        options, heads = request.options, self.t3.config.alignment_heads
        self.t3.check(request.text, options)
        guard = Guard(heads, len(request.text)) if options.guard and heads else None
        prefix = self._prefixes.get(request.prompt, options.exaggeration)
        begun = self.t3.begin(request.text, prefix, options, guard=guard, forced=request.forced)
        number = next(self._numbers)
        self._live[number] = Live(number, request, *begun, guard)
        return number

    @torch.inference_mode()
    def step(self, numbers: Collection[int]) -> list[TokenEvent]:
        with MONITOR.computing():
            return self._step(numbers)

    def _step(self, numbers: Collection[int]) -> list[TokenEvent]:
        requests = [self._live[number] for number in numbers]
        together = self._read_together([one for one in requests if one.sampler.n_tokens])
        events = []
        for one in requests:
            try:
                logits = together.get(one.number)
                events.append(self._draw(one, self._read(one) if logits is None else logits))
            except Exception as error:  # one request's, and only its own
                self.cancel(one.number)
                events.append(TokenEvent.failed(one.number, error))
        return events

    def _read_together(self, requests: Sequence[Live]) -> dict[int, Tensor]:
        """The logits of those that are under way, by number; nothing: they are read one by one."""
        if len(requests) < 2 or not self.t3.is_batchable:
            return {}
        tokens = [(one.sampler.token, one.sampler.n_tokens - 1) for one in requests]
        try:
            logits = self.t3.next_together([one.utterance for one in requests], tokens)
        except NightingaleError:  # refused before anything was computed: by themselves, then
            return {}
        return {one.number: own for one, own in zip(requests, logits, strict=True)}

    @staticmethod
    def _read(live: Live) -> Tensor:
        """The logits of one request's next token."""
        if live.sampler.n_tokens == 0:
            return live.utterance.first()
        return live.utterance.next(live.sampler.token, live.sampler.n_tokens - 1)

    def _draw(self, live: Live, logits: Tensor) -> TokenEvent:
        token, guard, is_last = live.sampler.draw(logits), live.guard, live.sampler.is_over
        if is_last:
            self.cancel(live.number)
        position = guard.places[-1] if guard else None
        is_said = not (token == END_OF_SPEECH and guard and not guard.is_said)
        return TokenEvent(live.number, token, position, is_last, is_said)

    def cancel(self, number: int) -> None:
        self._live.pop(number, None)

    def forget(self, prompt: T3Prompt) -> None:
        self._prefixes.forget(prompt)
