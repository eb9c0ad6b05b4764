"""What was made of voices, kept for the next request: by content, and no more than fits.

A voice is named by its numbers, so that two can never be taken for each other. For one model and
one thread. Knows nothing of what is kept but how large it is.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

Arrays = Iterable[NDArray[np.generic]]


class Sized(Protocol):
    @property
    def n_bytes(self) -> int: ...


V = TypeVar("V", bound=Sized)


class ByteLimitedLRU(Generic[V]):
    """Things up to `max_bytes`, and always the last one; the least used make room."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._kept: OrderedDict[tuple[Hashable, ...], V] = OrderedDict()

    def get(self, content: Arrays, make: Callable[[], V], *more: Hashable) -> V:
        """What belongs to this content (and to whatever else tells it apart), or what is made."""
        key = digest(content), *more
        if key not in self._kept:
            self._kept[key] = make()
        self._kept.move_to_end(key)
        while len(self._kept) > 1 and sum(v.n_bytes for v in self._kept.values()) > self._max_bytes:
            self._kept.popitem(last=False)
        return self._kept[key]

    def forget(self, content: Arrays) -> None:
        """Drop all that belongs to this content."""
        name = digest(content)
        for key in [key for key in self._kept if key[0] == name]:
            del self._kept[key]

    def __len__(self) -> int:
        return len(self._kept)


def digest(content: Arrays) -> str:
    """A name that no other content has."""
    hashed = hashlib.sha256()
    for array in content:
        hashed.update(f"{array.dtype}{array.shape}".encode())
        hashed.update(array.tobytes())
    return hashed.hexdigest()
