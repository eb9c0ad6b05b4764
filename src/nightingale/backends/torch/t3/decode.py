"""The plain decode loop: the reference for every faster one.

It makes one token at a time for whoever asks, and stops when nobody asks any more. Knows nothing of
backbones, text or voices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

import torch
from torch import Tensor

from nightingale.backends.torch.t3.sampling import Sampler
from nightingale.core import END_OF_SPEECH, START_OF_SPEECH

Noise = Callable[[int], Tensor]  # token index -> Exp(1) draws, (V,)


class Steps(Protocol):
    """One utterance under way. `penalizes_start`: the start token counts as said, for good."""

    penalizes_start: bool

    def first(self) -> Tensor:
        """Read the prompt; returns the logits of token 0, (V,)."""

    def next(self, token: Tensor, index: int) -> Tensor:
        """Read token number `index`; returns the logits of the one after it, (V,)."""


class SequenceSampler:
    """Draws the tokens of one utterance from their logits; what was said counts from then on.

    The first tokens are the `forced` ones, whatever would be drawn.
    """

    def __init__(
        self,
        sample: Sampler,
        noise: Noise,
        max_tokens: int,
        forced: Sequence[int] = (),
        *,
        penalizes_start: bool,
    ) -> None:
        self._sample, self._noise, self._max, self._forced = sample, noise, max_tokens, forced
        self._penalizes_start = penalizes_start
        self.seen: Tensor | None = None  # (V,) bool: tokens that were said
        self.token = torch.tensor(START_OF_SPEECH)  # drawn last
        self.n_tokens = 0
        self.is_over = False

    def draw(self, logits: Tensor) -> int:
        """One more; END_OF_SPEECH is the last, unless the limit was reached."""
        if self.seen is None:
            self.seen = torch.zeros_like(logits, dtype=torch.bool)
            self.seen[START_OF_SPEECH] = True
        self.token = self._sample(logits, self.seen, self._noise(self.n_tokens))
        if self.n_tokens < len(self._forced):
            self.token = self.token.new_tensor(self._forced[self.n_tokens])
        if self.n_tokens == 0 and not self._penalizes_start:
            self.seen[START_OF_SPEECH] = False
        self.seen[self.token] = True
        self.n_tokens += 1
        number = int(self.token)
        self.is_over = number == END_OF_SPEECH or self.n_tokens == self._max
        return number


def decode(
    steps: Steps, sample: Sampler, noise: Noise, max_tokens: int, forced: Sequence[int] = ()
) -> Iterator[int]:
    """Speech tokens as they are made; END_OF_SPEECH is the last, unless the limit was reached."""
    sampler = SequenceSampler(
        sample, noise, max_tokens, forced, penalizes_start=steps.penalizes_start
    )
    logits = steps.first()
    while True:
        yield sampler.draw(logits)
        if sampler.is_over:
            return
        logits = steps.next(sampler.token, sampler.n_tokens - 1)
