"""T3 behind the backend interface: many requests, each with a cache of its own."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import count

import torch

from nightingale.backends.base import TokenEvent, TokenRequest
from nightingale.backends.torch.t3.guard import Guard
from nightingale.backends.torch.t3.model import T3
from nightingale.backends.torch.t3.prefix import Prefixes
from nightingale.core import END_OF_SPEECH, T3Prompt


@dataclass(slots=True)
class _Live:
    tokens: Iterator[int]
    guard: Guard | None
    n_left: int


class TorchTokenEngine:
    """Text tokens -> speech tokens, one request after the other."""

    def __init__(self, t3: T3) -> None:
        self.t3 = t3
        self._prefixes = Prefixes(t3.prefix)
        self._numbers = count(1)
        self._live: dict[int, _Live] = {}

    def __len__(self) -> int:
        return len(self._live)

    @torch.inference_mode()
    def add(self, request: TokenRequest) -> int:
        options, heads = request.options, self.t3.config.alignment_heads
        self.t3.check(request.text, options)
        guard = Guard(heads, len(request.text)) if options.guard and heads else None
        prefix = self._prefixes.get(request.prompt, options.exaggeration)
        tokens = self.t3.decode(request.text, prefix, options, guard=guard, forced=request.forced)
        number = next(self._numbers)
        self._live[number] = _Live(tokens, guard, options.max_tokens)
        return number

    @torch.inference_mode()
    def step(self, numbers: Collection[int]) -> list[TokenEvent]:
        return [self._step(number, self._live[number]) for number in numbers]

    def _step(self, number: int, live: _Live) -> TokenEvent:
        token, guard = next(live.tokens), live.guard
        live.n_left -= 1
        is_end = token == END_OF_SPEECH
        is_last = is_end or live.n_left == 0
        if is_last:
            self.cancel(number)
        position = guard.places[-1] if guard else None
        is_said = not (is_end and guard and not guard.is_said)
        return TokenEvent(number, token, position, is_last, is_said)

    def cancel(self, number: int) -> None:
        self._live.pop(number, None)

    def forget(self, prompt: T3Prompt) -> None:
        self._prefixes.forget(prompt)
