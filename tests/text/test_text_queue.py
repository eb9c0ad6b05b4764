"""Text that is still being written does not hold up who speaks it."""

from __future__ import annotations

from nightingale.text.split import CUT, TextPart, split, split_stream
from nightingale.text.text_queue import TextQueue


def test_pieces_come_in_order_and_gaps_are_told() -> None:
    text_queue = TextQueue(["One. ", ""])
    pieces = iter(text_queue)
    assert text_queue.is_ready()
    assert next(pieces) == "One. "
    assert text_queue.is_ready()  # whoever speaks is still at it
    assert next(pieces) == ""
    assert not text_queue.is_ready()
    text_queue.put("")
    assert not text_queue.is_ready()
    text_queue.put("Two.")
    assert text_queue.is_ready()
    assert next(pieces) == "Two."
    assert next(pieces) == ""
    text_queue.end()
    assert text_queue.is_ready()
    assert list(pieces) == []


def test_parts_are_the_same_however_the_text_came() -> None:
    text = (
        "Sure, I can do that. It takes a while, though; please be patient with me until then. So."
    )
    at_once = list(split_stream([text]))
    text_queue = TextQueue()
    parts, gathered = [], split_stream(text_queue)
    for character in text:
        text_queue.put(character)
        while (part := next(gathered)) is not None:
            parts.append(part)
    text_queue.end()
    parts += [part for part in gathered if part is not None]
    assert parts == at_once


def test_a_form_feed_cuts_at_once_and_the_next_part_may_be_short_again() -> None:
    said = split_stream(["He said" + CUT + "Sure. And that was it."])
    assert [part.text for part in said if part] == ["He said", "Sure.", "And that was it."]
    assert list(split_stream([CUT + " " + CUT + "Yes" + CUT])) == [TextPart("Yes")]
    assert [part.text for part in split("One" + CUT + "two")] == ["One", "two"]
