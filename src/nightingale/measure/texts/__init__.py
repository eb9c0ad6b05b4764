"""What speech is judged on: 200 sentences and 100 short texts that Fledgling never learned from.

Made by training/texts.py and frozen here; training/README.md names their sources and licences.
"""

from __future__ import annotations

from importlib import resources
from typing import Literal

Kind = Literal["held_out", "short"]


def read(kind: Kind, n: int | None = None) -> list[str]:
    """All texts of a kind, or n of them, spread evenly over all there are."""
    file = resources.files(__name__) / f"{kind}.txt"
    texts = file.read_text(encoding="utf-8").splitlines()
    if n is None or n >= len(texts):
        return texts
    return [texts[i * len(texts) // n] for i in range(n)]
