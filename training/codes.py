"""What codes have in common: eight digits, so that what is learned of one holds for its kin.

There are 6561 of them, many are rare, and a table of free rows learns each on its own: a flow with
one had not learned rare codes after 5000 steps. While it is trained, a row here is the sum of what
its digits and pairs of digits say, and a rest of its own; afterwards it is a plain table again.
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


class Kinship(nn.Module):
    """Adds to each row what its digits say; rows behind the codes have none."""

    def __init__(self, n_rows: int, width: int) -> None:
        super().__init__()
        facts = features()
        self.register_buffer("features", F.pad(facts, (0, 0, 0, n_rows - len(facts))), False)
        self.features: Tensor
        self.said = nn.Parameter(torch.empty(facts.shape[1], width).normal_(0, 0.02))

    def forward(self, rest: Tensor) -> Tensor:
        return rest + self.features @ self.said


def relate(layer: nn.Embedding | nn.Linear, spread: float) -> None:
    """Let the rows of a table or of a last layer be related; `spread` of what they are at first."""
    n_rows, width = layer.weight.shape
    with torch.no_grad():
        layer.weight.normal_(0, 0.2 * spread)
    kinship = Kinship(n_rows, width)
    n_said = N_DIGITS + N_DIGITS * (N_DIGITS - 1) // 2
    with torch.no_grad():
        kinship.said.normal_(0, spread / n_said**0.5)
    parametrize.register_parametrization(layer, "weight", kinship)


def settle(layer: nn.Embedding | nn.Linear) -> None:
    """A plain table again."""
    parametrize.remove_parametrizations(layer, "weight", leave_parametrized=True)
