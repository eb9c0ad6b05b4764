"""Layers over time on an utterance that comes in pieces: each position is computed once.

A convolution that looks ahead is certain of a position when what lies ahead of it is known. Behind
the last certain one a piece is computed as if the utterance ended there, to be heard soon, and
again with the next piece. What a layer needs again is cached: the last certain positions of its
input. With nothing cached, a piece is the whole. Knows nothing of what the layers compute.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, eq=False)
class Piece:
    """Positions of a layer's input or output, from number `first` on."""

    x: Tensor  # (T, D)
    first: int
    n_final: int  # so many positions of the utterance will not change any more

    @property
    def end(self) -> int:
        return self.first + len(self.x)

    def between(self, begin: int, end: int) -> Tensor:
        """(T', D): positions `begin` to `end`, as far as they are here."""
        return self.x[max(0, begin - self.first) : max(0, end - self.first)]

    def until(self, end: int) -> Piece:
        """Without what is uncertain from position `end` on."""
        return Piece(self.x[: max(end, self.n_final) - self.first], self.first, self.n_final)


class PieceCaches:
    """What the layers cached of the pieces before, read in the order in which they ask for it, and
    what they cache for the next piece."""

    def __init__(self, before: Sequence[Piece] = (), *, is_last: bool = True) -> None:
        self._before, self._is_last = iter(before), is_last
        self.kept: list[Piece] = []

    def join(self, piece: Piece, keep_from: int) -> Piece:
        """The piece behind what was cached of the one before; what is certain from position
        `keep_from` on is cached."""
        before = next(self._before, None)
        if before is not None:
            assert piece.first <= before.end, "positions between two pieces are missing"
            new = piece.between(before.end, piece.end)
            piece = Piece(torch.cat((before.x, new)), before.first, piece.n_final)
        if not self._is_last:
            begin = max(piece.first, min(keep_from, piece.n_final))
            kept = piece.between(begin, piece.n_final).clone()
            self.kept.append(Piece(kept, begin, piece.n_final))
        return piece

    def add(self, pieces: Sequence[Piece]) -> Piece:
        """Their sum, in the memory of the first, as far as all of them are there."""
        n_final, end = min(p.n_final for p in pieces), min(p.end for p in pieces)
        joined = [self.join(piece, n_final) for piece in pieces]
        first = max(piece.first for piece in joined)
        total, *rest = (piece.between(first, end) for piece in joined)
        for other in rest:
            total += other
        return Piece(total, first, n_final)


def joined_for(caches: PieceCaches, piece: Piece, half: int, then: int = 0) -> Piece:
    """The piece as a convolution reads it that looks `half` positions to either side; and as its
    result is added to what a second one makes of it, that looks so far `then`."""
    return caches.join(piece, max(0, piece.n_final - half - max(half, 2 * then)))


def zeros_around(piece: Piece, half: int) -> tuple[int, int]:
    """How many zeros it reads with such a piece, and how many of them in front of it."""
    n_before = 0 if piece.first else half
    return n_before + half, n_before


def convolved(piece: Piece, made: Tensor, half: int) -> Piece:
    """What it made of both."""
    return Piece(made, piece.first + half if piece.first else 0, max(0, piece.n_final - half))
