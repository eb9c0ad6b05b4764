"""Keeps an utterance to its text: no early end, no babble after the last word, no endless loop.

Some heads of T3 look at the letter that is being said. While they are sure of it, the guard knows
how far the text has come: before its end, the token that ends speech is not drawn; soon after it,
nothing else is. Where heads are not sure, or a model has none, nothing is changed. Knows nothing of
what the text says.
"""

from __future__ import annotations

import torch
from torch import Tensor

from nightingale.backends.torch.t3.attention import Alignment, Heads
from nightingale.backends.torch.t3.sampling import Sampler
from nightingale.core import END_OF_SPEECH, TOKENS_PER_SECOND

SURE = 0.3  # of a head's attention, on one letter; half of it in a short text, where less is noise
JUMP = 8  # letters: further ahead is not progress but a stray look
TAIL = 3  # the last stop, the end of text, and one more: none of them must be heard
PATIENCE = 30  # tokens on one letter, after which speech may end there
LINGER = TOKENS_PER_SECOND  # tokens behind the last word
STUCK = 2 * TOKENS_PER_SECOND  # tokens on one letter: nobody pauses that long


class Guard:
    """Follows one utterance through a text of so many tokens, start and end of text included."""

    def __init__(self, heads: Heads, n_text: int) -> None:
        self.alignment = Alignment(heads)
        self.places: list[int] = []  # the text token that each speech token belongs to
        self._n_text = n_text
        self.sure = min(0.5, max(SURE, 3 / n_text))  # attention from which a look counts
        self._place = self._n_still = self._n_sure = 0

    def watch(self, sample: Sampler) -> Sampler:
        """The same way to draw tokens, under guard."""

        def guarded(logits: Tensor, seen: Tensor, noise: Tensor) -> Tensor:
            self._look(self.alignment.rows[-1])
            if self._is_over:
                return torch.tensor(END_OF_SPEECH, device=logits.device)
            if self._is_under_way:
                logits = logits.clone()
                logits[END_OF_SPEECH] = -torch.inf
            return sample(logits, seen, noise)

        return guarded

    @property
    def is_said(self) -> bool:
        """Whether the text was followed to its end, as far as the heads can tell."""
        return not self._is_sure or self._is_at_end

    @property
    def counts(self) -> tuple[int, int, int]:
        """The text token that is being said, tokens since it moved, tokens that were sure of it."""
        return self._place, self._n_still, self._n_sure

    def _look(self, row: Tensor) -> None:
        """(heads, text tokens) of the step before"""
        most, place = row.mean(0).max(0)
        self._n_still += 1
        if float(most) >= self.sure:
            self._n_sure += 1
            if 0 < int(place) - self._place <= JUMP:
                self._place, self._n_still = int(place), 0
        self.places.append(self._place)

    @property
    def _is_sure(self) -> bool:
        return 2 * self._n_sure >= len(self.places) > 0

    @property
    def _is_at_end(self) -> bool:
        return self._place >= self._n_text - TAIL

    @property
    def _is_under_way(self) -> bool:
        return self._is_sure and not self._is_at_end and self._n_still < PATIENCE

    @property
    def _is_over(self) -> bool:
        return self._is_sure and self._n_still >= (LINGER if self._is_at_end else STUCK)
