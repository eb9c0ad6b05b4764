"""Text that is still being written, for who must not wait for it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator


class TextQueue:
    """Pieces in at any time, from any thread; out in order, and empty ones while none is there.

    So whoever speaks the text gets control back and can ask again when `is_ready` says so.
    """

    def __init__(self, pieces: Iterable[str] = ()) -> None:
        self._pieces = deque(piece for piece in pieces if piece)
        self.n_characters = sum(map(len, self._pieces))  # that were put in so far
        self._is_over = self._is_awaited = False

    def put(self, piece: str) -> None:
        if piece:
            self._pieces.append(piece)
            self.n_characters += len(piece)

    def end(self) -> None:
        """Nothing more comes."""
        self._is_over = True

    def is_ready(self) -> bool:
        """Nobody waits for a piece, or there is one, or there will never be."""
        return not self._is_awaited or bool(self._pieces) or self._is_over

    def __iter__(self) -> Iterator[str]:
        while True:
            if self._pieces:
                yield self._pieces.popleft()
            elif self._is_over:
                if not self._pieces:  # the last one may have come in between
                    return
            else:
                self._is_awaited = True
                yield ""
                self._is_awaited = False
