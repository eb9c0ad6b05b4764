"""Other voices for T3: when their words end."""

from __future__ import annotations

import numpy as np

from training.other_voices import word_ends
from training.token_corpus import HOP


def test_words_end_where_their_last_sound_does() -> None:
    durations = np.array([7, 1, 2, 3, 4, 5, 6, 9], np.float32)  # silence, six sounds, silence
    # Neither the space nor the period belongs to a word; the silence before is cut off.
    assert word_ends(list("ab cd."), durations) == [3 * HOP, 15 * HOP]
    assert word_ends(list("ˈb , c"), durations) == [3 * HOP, 3 * HOP, 21 * HOP]
