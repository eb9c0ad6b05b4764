"""What all requests of one voice share, computed once: the positions in front of the text.

Guidance adds a second part. Its row reads positions in place of words, so it does not depend on the
text but for its length: it is read once a voice, as far as the longest text so far, and cut to fit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from nightingale.backends.torch.t3.cache import KVCache
from nightingale.core import T3Prompt
from nightingale.nn.lru import ByteLimitedLRU

GRID = 64  # text positions read at once; fixed, so that the bits never depend on who asked before


@dataclass(slots=True)
class Prefix:
    """Read-only for requests, which fork it; only `T3` lets the uncond part grow."""

    voice: KVCache  # the conditioning positions, one row
    uncond: KVCache | None  # the same and then text positions without text; None: no guidance

    @property
    def n_bytes(self) -> int:
        return self.voice.n_bytes + (self.uncond.n_bytes if self.uncond else 0)


class Prefixes:
    """The prefixes of the voices used last, up to `max_bytes`. For one model and one thread."""

    def __init__(self, make: Callable[[T3Prompt, float], Prefix], max_bytes: int = 2**29) -> None:
        self._make = make
        self._kept: ByteLimitedLRU[Prefix] = ByteLimitedLRU(max_bytes)

    def get(self, prompt: T3Prompt, exaggeration: float) -> Prefix:
        """The prefix of this voice, from before or made now; the least used make room."""
        content = (prompt.speaker, prompt.tokens)
        return self._kept.get(content, lambda: self._make(prompt, exaggeration), exaggeration)

    def forget(self, prompt: T3Prompt) -> None:
        """Drop every prefix of this voice."""
        self._kept.forget((prompt.speaker, prompt.tokens))

    def __len__(self) -> int:
        return len(self._kept)
