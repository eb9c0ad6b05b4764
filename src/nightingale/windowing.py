"""Windows of speech tokens, which are decoded one after the other; the plan fixes their sizes.

The first windows are short, so that sound comes soon; later ones are longer, which costs less. What
a listener does with the sound has no influence on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, repeat

from nightingale.backends.base import LOOKAHEAD_TOKENS, TokenWindow


def token_windows(
    tokens: Iterable[int], window_sizes: Sequence[int]
) -> Iterator[TokenWindow | None]:
    """A window as soon as its tokens are there, and None for each token before that.

    Without sizes, one window holds everything.
    """
    held: list[int] = []
    sizes = chain(window_sizes, repeat(window_sizes[-1])) if window_sizes else None
    size = next(sizes) if sizes else 0
    for token in tokens:
        held.append(token)
        if sizes and len(held) == size + LOOKAHEAD_TOKENS:
            yield TokenWindow(held.copy(), is_last=False)
            del held[:size]
            size = next(sizes)
        else:
            yield None
    yield TokenWindow(held, is_last=True)
