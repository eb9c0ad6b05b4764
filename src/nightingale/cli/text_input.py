"""The text to speak: from the command line, a file or standard input. It is never cut in silence.

What is too long, empty or not UTF-8 is refused before a model is loaded.
"""

from __future__ import annotations

import codecs
import io
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from nightingale.core import Options, Pronunciations
from nightingale.errors import OptionError, TextError

MAX_CHARACTERS = 5_000_000  # a long novel has 2 million
_BLOCK = 2**20
_MAX_COUNTED = 2**28  # bytes: what has no end (`yes |`) is not counted to its end
_MAX_NAME = 255


def check_source(words: Sequence[str], file: Path | None) -> None:
    """Exactly one source, and the shell has not taken a sentence apart."""
    if len(words) > 1:
        sentence = " ".join(words)
        raise OptionError(f'put the text in quotes: nightingale say "{sentence}"')
    if words and file is not None:
        raise OptionError("there are two texts: leave out the argument or --file")
    if not words and file is None:
        raise OptionError("there is no text: give one, or - for standard input, or --file FILE")


def read(words: Sequence[str], file: Path | None) -> str:
    """All of the text."""
    if file is not None:
        try:
            with file.open("rb") as stream:
                return _checked(_decoded(stream, str(file)))
        except OSError as error:
            raise OptionError(f"{file} cannot be read: {error.strerror}") from error
    if words[0] == "-":
        return _checked(_decoded(sys.stdin.buffer, "standard input"))
    return _checked(words[0])


def arriving() -> Iterator[str]:
    """Standard input, character by character as it is typed or piped."""
    lines = io.TextIOWrapper(sys.stdin.buffer, encoding="utf-8-sig", newline=None)
    n_characters = 0
    try:
        while character := lines.read(1):
            n_characters += 1
            if n_characters > MAX_CHARACTERS:
                raise TextError(
                    f"standard input is longer than {MAX_CHARACTERS:,} characters: everything up "
                    "to there was spoken; split the text and speak the rest on its own"
                )
            yield character
    except UnicodeDecodeError as error:
        raise _not_utf8("standard input", error) from error
    finally:
        lines.detach()  # else the wrapper closes standard input


def is_file_name(text: str) -> bool:
    """It names a file that is there and looks like a path: was it meant as --file?"""
    if len(text) > _MAX_NAME or "\0" in text:
        return False
    path = Path(text)
    return (bool(path.suffix) or "/" in text or os.sep in text) and path.is_file()


def _decoded(stream: BinaryIO, name: str) -> str:
    """UTF-8 with any line ends, or an error that says what is wrong with it."""
    decoder = codecs.getincrementaldecoder("utf-8-sig")()
    newlines = io.IncrementalNewlineDecoder(decoder, translate=True)
    pieces: list[str] = []
    n_characters = n_bytes = 0
    while block := stream.read(_BLOCK):
        try:
            piece = newlines.decode(block)
        except UnicodeDecodeError as error:
            raise _not_utf8(name, error) from error
        n_characters += len(piece)
        n_bytes += len(block)
        if n_characters <= MAX_CHARACTERS:
            pieces.append(piece)
        elif n_bytes > _MAX_COUNTED:
            raise _too_long(name, f"more than {n_characters:,}")
    try:
        pieces.append(newlines.decode(b"", final=True))
    except UnicodeDecodeError as error:
        raise _not_utf8(name, error) from error
    if n_characters > MAX_CHARACTERS:
        raise _too_long(name, f"{n_characters:,}")
    return "".join(pieces)


def _checked(text: str) -> str:
    if not any(character.isalnum() for character in text):
        raise TextError(
            f"the text is {text[:20]!r}: there is nothing to say; give at least one word"
        )
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise TextError(
            f"character {error.start} of the text is not valid UTF-8; is the terminal's encoding "
            "another one? Put the text into a UTF-8 file and use --file"
        ) from error
    return text


def _too_long(name: str, length: str) -> TextError:
    return TextError(
        f"{name} is {length} characters long, and one call speaks at most {MAX_CHARACTERS:,}; "
        "split it, by chapter for instance, and speak each part into a file of its own"
    )


def _not_utf8(name: str, error: UnicodeDecodeError) -> TextError:
    byte = error.object[error.start]
    return TextError(
        f"{name} is not UTF-8 (byte 0x{byte:02x}); convert it first, for instance with "
        "`iconv -f ISO-8859-1 -t UTF-8`"
    )


def pronunciations(
    file: Path | None, home: Path, language: str | None, voice: str | None
) -> Pronunciations:
    """Of a file that was named, or of the one in the home folder."""
    from nightingale.text.pronunciation import FILE_NAME, read_file, select

    if file is not None and not file.is_file():
        raise OptionError(f"there is no file {file}")
    return select(read_file(file or home / FILE_NAME), language or "en", voice)


def show(text: str, options: Mapping[str, Any]) -> None:
    """Print what would be spoken, a line for each part of the text."""
    from nightingale.text.markup import OFF
    from nightingale.text.spoken import spoken_parts

    wanted = Options(**options)
    said = wanted.language, wanted.normalization, wanted.pronunciations
    for part in spoken_parts(text, *said, markup=wanted.markup != OFF):
        sys.stdout.write(part.spoken + "\n")


def voice_names(text: str, options: Options) -> list[str]:
    """That the mark-up of the text names."""
    from nightingale.text.markup import OFF, Markup

    markup = Markup()
    if options.markup != OFF:
        markup.whole(text)
    return list(markup.voices)
