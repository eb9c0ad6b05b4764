"""Letters that stand alone get their names; words that are one letter do not."""

from __future__ import annotations

import pytest

from nightingale.text.letters import spell


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("V.", "vee."),
        ("Z, J, P!", "zee, jay, pee!"),
        ("Plan B, a T-shirt, vitamin A.", "Plan bee, a tee-shirt, vitamin aye."),
        ("J. R. R. Tolkien", "jay. ar. ar. Tolkien"),
        ("W", "double-you"),
        ("A dog and I.", "A dog and I."),
        ("I'm O'Brien, it's D'Arcy’S.", "I'm O'Brien, it's D'Arcy’S."),
        ("THE BBC and b.", "THE BBC and b."),
    ],
)
def test_lone_letters(written: str, said: str) -> None:
    assert spell(written) == said
    assert len(said.split()) == len(written.split())  # words keep their times
