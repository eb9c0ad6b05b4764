"""A text, known or still arriving, as the parts that are spoken one after the other."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from nightingale.core import Options
from nightingale.text.languages import check_language
from nightingale.text.markup import OFF, Markup
from nightingale.text.readable import Reader, Reads
from nightingale.text.split import EAGER, SINGLE, WHOLE, TextPart, split_lazily, split_stream
from nightingale.text.spoken import SpokenForm


def text_parts(
    text: str | Iterable[str],
    tokenizer: Reads,
    options: Options,
    markup: Markup,
    unspoken: list[str],
    *,
    is_single: bool,
) -> Iterator[TextPart | None]:
    """What is wrong with the mark-up of a known text is said now, and `markup` knows its voices.

    `unspoken` lists what is left out, as it is found. None: nothing is there yet.
    """
    code = check_language(options.language, tokenizer.languages)
    said = options.normalization, options.pronunciations
    form = SpokenForm(options.language, *said, markup.substitutions)
    reader = Reader(tokenizer, options.language, unspoken, form)
    whole, coming = (SINGLE, SINGLE) if is_single else (WHOLE, EAGER)
    if isinstance(text, str):
        left = text if options.markup == OFF else markup.whole(text)
        for written in markup.languages:
            check_language(written, tokenizer.languages)
        return reader.whole(left, lambda text: split_lazily(text, whole, code, markup.marks))
    pieces = text if options.markup == OFF else markup.read(text)
    return reader.arriving(pieces, lambda text: split_stream(text, coming, code, markup.marks))
