"""Text that is still being written does not hold up who speaks it."""

from __future__ import annotations

from nightingale.text.inlet import Inlet
from nightingale.text.split import CUT, TextPart, gather, split


def test_pieces_come_in_order_and_gaps_are_told() -> None:
    inlet = Inlet(["One. ", ""])
    pieces = iter(inlet)
    assert inlet.is_ready()
    assert next(pieces) == "One. "
    assert inlet.is_ready()  # whoever speaks is still at it
    assert next(pieces) == ""
    assert not inlet.is_ready()
    inlet.put("")
    assert not inlet.is_ready()
    inlet.put("Two.")
    assert inlet.is_ready()
    assert next(pieces) == "Two."
    assert next(pieces) == ""
    inlet.end()
    assert inlet.is_ready()
    assert list(pieces) == []


def test_parts_are_the_same_however_the_text_came() -> None:
    text = (
        "Sure, I can do that. It takes a while, though; please be patient with me until then. So."
    )
    at_once = list(gather([text]))
    inlet = Inlet()
    parts, gathered = [], gather(inlet)
    for character in text:
        inlet.put(character)
        while (part := next(gathered)) is not None:
            parts.append(part)
    inlet.end()
    parts += [part for part in gathered if part is not None]
    assert parts == at_once


def test_a_form_feed_cuts_at_once_and_the_next_part_may_be_short_again() -> None:
    said = gather(["He said" + CUT + "Sure. And that was it."])
    assert [part.text for part in said if part] == ["He said", "Sure.", "And that was it."]
    assert list(gather([CUT + " " + CUT + "Yes" + CUT])) == [TextPart("Yes")]
    assert [part.text for part in split("One" + CUT + "two")] == ["One", "two"]
