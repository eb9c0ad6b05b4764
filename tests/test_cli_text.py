"""The text of `say`: read whole from wherever it comes, or refused with a reason."""

from __future__ import annotations

import io
import re
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from nightingale.cli import app, text_input
from nightingale.errors import OptionError, TextError


def given(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data)))


def test_standard_input_is_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "Ein Wörtchen.\n" * 150_000  # several blocks, and letters across their edges
    given(monkeypatch, b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode())
    assert text_input.read(["-"], None) == text
    given(monkeypatch, text[:1000].encode())
    assert "".join(text_input.arriving()) == text[:1000]


def test_too_long_a_text_is_refused_with_its_length(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(text_input, "MAX_CHARACTERS", 100)
    given(monkeypatch, b"a" * 100)
    assert len(text_input.read(["-"], None)) == 100
    given(monkeypatch, b"a" * 101)
    with pytest.raises(TextError, match=r"standard input is 101 characters long.*at most 100"):
        text_input.read(["-"], None)
    given(monkeypatch, b"a" * 101)
    with pytest.raises(TextError, match="longer than 100 characters"):
        list(text_input.arriving())
    book = tmp_path / "book.txt"
    book.write_text("é" * 101, encoding="utf-8")
    with pytest.raises(TextError, match=r"book.txt is 101 characters long"):
        text_input.read([], book)
    monkeypatch.setattr(text_input, "_MAX_COUNTED", 10)
    with pytest.raises(TextError, match=r"book.txt is more than 101 characters long"):
        text_input.read([], book)


@pytest.mark.parametrize("data", [b"caf\xe9 au lait", b"caf\xc3", b"caf\xe9"])
def test_what_is_not_utf8_is_refused(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    given(monkeypatch, data)
    with pytest.raises(TextError, match=r"standard input is not UTF-8.*iconv"):
        text_input.read(["-"], None)
    given(monkeypatch, data)
    with pytest.raises(TextError, match="standard input is not UTF-8"):
        list(text_input.arriving())


@pytest.mark.parametrize("text", ["", "   ", "\n", "...", "🎉🎉"])
def test_nothing_to_say(text: str) -> None:
    with pytest.raises(TextError, match="nothing to say"):
        text_input.read([text], None)


def test_an_argument_in_another_encoding_is_refused() -> None:
    with pytest.raises(TextError, match="character 3 of the text is not valid UTF-8"):
        text_input.read(["caf\udce9"], None)


def test_there_is_one_source() -> None:
    text_input.check_source(["-"], None)
    text_input.check_source([], Path("book.txt"))
    for words, file in ((["a", "b"], None), (["a"], Path("b")), ([], None)):
        with pytest.raises(OptionError):
            text_input.check_source(words, file)


def test_a_file_name_is_recognized(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("book.txt", "Hello", "my book.txt"):
        Path(name).write_text("x")
    assert text_input.is_file_name("book.txt")
    assert text_input.is_file_name("my book.txt")
    assert text_input.is_file_name("./Hello")
    assert not text_input.is_file_name("Hello")  # a word that happens to be a file
    assert not text_input.is_file_name("other.txt")
    assert not text_input.is_file_name("a/" * 200)
    assert not text_input.is_file_name("\0")


def test_show_text_prints_what_would_be_spoken() -> None:
    shown = CliRunner().invoke(app, ["say", "--show-text", "--language", "de", "Am 3. Mai: 25 kg"])
    assert (shown.exit_code, shown.stdout) == (0, "Am dritten Mai: fünfundzwanzig Kilogramm\n")
    shown = CliRunner().invoke(app, ["say", "--show-text", "--normalization", "off", "25 kg"])
    assert shown.stdout == "25 kg\n"


@pytest.mark.slow
def test_show_text_detects_the_language_among_those_of_the_model(tmp_path: Path) -> None:
    arguments = ["say", "--show-text", "--language", "auto", "It cost $3 in all."]
    environment = {"NIGHTINGALE_HOME": str(tmp_path)}
    shown = CliRunner().invoke(app, arguments, env=environment)
    assert shown.stdout == "It cost three dollars in all.\n"
    assert re.search(r"Language: English \(en\), detected with confidence [01]\.\d\d", shown.stderr)


def test_show_text_knows_pronunciations(tmp_path: Path) -> None:
    file = tmp_path / "p.toml"
    file.write_text('[[pronunciation]]\nterm = "SQL"\nreplacement = "sequel"\n', encoding="utf-8")
    arguments = ["say", "--show-text", "--pronunciations", str(file), "SQL, 3 times"]
    assert CliRunner().invoke(app, arguments).stdout == "sequel, three times\n"
