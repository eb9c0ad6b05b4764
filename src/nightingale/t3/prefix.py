"""What all requests of one voice share, computed once: the positions in front of the text.

Guidance adds a second part. Its row reads positions in place of words, so it does not depend on the
text but for its length: it is read once a voice, as far as the longest text so far, and cut to fit.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from nightingale.core import T3Prompt
from nightingale.t3.cache import KVCache

GRID = 64  # text positions read at once; fixed, so that the bits never depend on who asked before


@dataclass(slots=True)
class Prefix:
    """Read-only for requests, which fork it; only `T3` lets the wordless part grow."""

    voice: KVCache  # the conditioning positions, one row
    wordless: KVCache | None  # the same and then text positions without text; None: no guidance

    @property
    def n_bytes(self) -> int:
        return self.voice.n_bytes + (self.wordless.n_bytes if self.wordless else 0)


class Prefixes:
    """The prefixes of the voices used last, up to `max_bytes`. For one model and one thread."""

    def __init__(self, make: Callable[[T3Prompt, float], Prefix], max_bytes: int = 2**29) -> None:
        self._make = make
        self._max_bytes = max_bytes
        self._kept: OrderedDict[tuple[str, float], Prefix] = OrderedDict()

    def get(self, prompt: T3Prompt, exaggeration: float) -> Prefix:
        """The prefix of this voice, from before or made now; the least used make room."""
        key = _digest(prompt), exaggeration
        if key not in self._kept:
            self._kept[key] = self._make(prompt, exaggeration)
        self._kept.move_to_end(key)
        while len(self._kept) > 1 and sum(p.n_bytes for p in self._kept.values()) > self._max_bytes:
            self._kept.popitem(last=False)
        return self._kept[key]

    def __len__(self) -> int:
        return len(self._kept)


def _digest(prompt: T3Prompt) -> str:
    """Names a voice by its content, so that two voices can never be taken for each other."""
    content = hashlib.sha256()
    for tensor in (prompt.speaker, prompt.tokens):
        content.update(f"{tensor.dtype}{tuple(tensor.shape)}".encode())
        content.update(tensor.cpu().contiguous().numpy().tobytes())
    return content.hexdigest()
