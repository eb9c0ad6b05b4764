"""Voices that the mark-up of a text names: looked up while the text comes, before any is spoken."""

from __future__ import annotations

from collections.abc import Callable

from nightingale.server.voices import VoiceFile
from nightingale.text.markup import Markup


class VoiceTags:
    """One text. What is wrong with its mark-up is raised by `feed`."""

    def __init__(self, find: Callable[[str], VoiceFile], *, is_on: bool) -> None:
        """Off: nothing in the text is a tag."""
        self._find, self._is_on = find, is_on
        self._markup = Markup()
        self._n_known = 0

    def feed(self, piece: str) -> dict[str, VoiceFile]:
        """More of the text; the voices that it names and that were not named before."""
        if not self._is_on or not piece:
            return {}
        for _ in self._markup.feed(piece):
            pass
        self._markup.marks.clear()
        self._markup.substitutions.clear()
        fresh = list(self._markup.voices)[self._n_known :]
        self._n_known += len(fresh)
        return {name: self._find(name) for name in fresh}
