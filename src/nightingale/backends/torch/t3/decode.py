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


def decode(
    steps: Steps, sample: Sampler, noise: Noise, max_tokens: int, forced: Sequence[int] = ()
) -> Iterator[int]:
    """Speech tokens as they are made; END_OF_SPEECH is the last, unless the limit was reached.

    The first tokens are the `forced` ones, whatever would be drawn.
    """
    logits = steps.first()
    seen = torch.zeros_like(logits, dtype=torch.bool)
    seen[START_OF_SPEECH] = True
    for index in range(max_tokens):
        token = sample(logits, seen, noise(index))
        if index < len(forced):
            token = token.new_tensor(forced[index])
        number = int(token)
        yield number
        if number == END_OF_SPEECH or index + 1 == max_tokens:
            return
        if index == 0 and not steps.penalizes_start:
            seen[START_OF_SPEECH] = False
        seen[token] = True
        logits = steps.next(token, index)
