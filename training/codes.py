"""Factorized embeddings of speech codes: rows share parameters by their eight base-3 digits.

There are 6561 codes, many are rare, and a plain table learns each on its own: a flow with one had
not learned rare codes after 5000 steps. In training a row is the sum of embeddings of its digits
and pairs of digits and a residual of its own; afterwards it is merged into a plain table.
"""

from __future__ import annotations

import itertools

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils import parametrize

from nightingale.core import N_SPEECH_CODES

N_DIGITS, BASE = 8, 3


def features() -> Tensor:
    """(6561, 276): which value each digit has, and which values each pair of digits has."""
    codes = torch.arange(N_SPEECH_CODES)
    digits = torch.stack([codes // BASE**place % BASE for place in range(N_DIGITS)], dim=1)
    alone = F.one_hot(digits, BASE).flatten(1)
    pairs = [
        F.one_hot(digits[:, a] * BASE + digits[:, b], BASE**2)
        for a, b in itertools.combinations(range(N_DIGITS), 2)
    ]
    return torch.cat((alone, *pairs), dim=1).float()


class DigitEmbedding(nn.Module):
    """Adds the embeddings of its digits to each row; rows beyond the codes have none."""

    def __init__(self, n_rows: int, width: int) -> None:
        super().__init__()
        facts = features()
        self.register_buffer("features", F.pad(facts, (0, 0, 0, n_rows - len(facts))), False)
        self.features: Tensor
        self.said = nn.Parameter(torch.empty(facts.shape[1], width).normal_(0, 0.02))

    def forward(self, rest: Tensor) -> Tensor:
        return rest + self.features @ self.said


def add_digit_embedding(layer: nn.Embedding | nn.Linear, spread: float) -> None:
    """Factorize an embedding or an output layer; `spread`: standard deviation of its first rows."""
    n_rows, width = layer.weight.shape
    with torch.no_grad():
        layer.weight.normal_(0, 0.2 * spread)
    digits = DigitEmbedding(n_rows, width)
    n_said = N_DIGITS + N_DIGITS * (N_DIGITS - 1) // 2
    with torch.no_grad():
        digits.said.normal_(0, spread / n_said**0.5)
    parametrize.register_parametrization(layer, "weight", digits)


def merge_digit_embedding(layer: nn.Embedding | nn.Linear) -> None:
    """Back to a plain table."""
    parametrize.remove_parametrizations(layer, "weight", leave_parametrized=True)
