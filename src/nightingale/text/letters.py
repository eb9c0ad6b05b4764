"""English letters by their names, written as they sound: for a model that has read words alone.

Knows nothing of tokens.
"""

from __future__ import annotations

import re
from string import ascii_uppercase

# Of several spellings, the one that the small model reads as the letter's name.
_SOUNDS = (
    "aye bee see dee ee eff jee aitch eye jay kay ell em en oh pee queue ar ess tee yu vee "
    "double-you ex why zee"
)
_NAMES = dict(zip(ascii_uppercase, _SOUNDS.split(), strict=True))
# Alone, and neither the article before its word nor what is left of "I'm" and "O'Brien".
ALONE = re.compile(r"(?<![\w'’])(?:A(?!\s+\w)|[B-HJ-Z])(?![\w'’])")


def spell(text: str) -> str:
    """The text with letters that stand alone as words."""
    return ALONE.sub(lambda found: _NAMES[found[0]], text)
