"""What a step of T3 reads and wants, and which letter of the text each speech token says."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from training.text_tokenizer import SPACE

IGNORED = -100


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    text: Tensor  # (B, T)
    speech: Tensor  # (B, S), ended by END_OF_SPEECH, then anything
    wanted: Tensor  # (B, S), the same with IGNORED behind the end
    place: Tensor  # (B, S), the letter of the text that is being said
    prompt: Tensor  # (B, P)
    speaker: Tensor  # (B, 256)


def places(ids: list[int], ends: list[int], n_tokens: int, n: int) -> NDArray[np.float64]:
    """(n,): which letter of the text each speech token says, in the middle of it."""
    behind = [i + 1 for i, piece in enumerate(ids) if piece == SPACE] + [len(ids) - 1]
    if len(behind) != len(ends):  # words that are spoken as one, or one as two
        behind, ends = [len(ids) - 1], [n_tokens]
    return np.interp(np.arange(n) + 0.5, [0, *ends, n_tokens], [1, *behind, len(ids) - 1])
