"""Terms are said as a person wants them: longest match, whole words, and a rule for case."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nightingale.core import Options
from nightingale.errors import OptionError
from nightingale.text.pronunciation import (
    Pronunciation,
    in_language,
    merged,
    parse_entries,
    pronounce,
    read_file,
    select,
)
from nightingale.text.split import TextPart
from nightingale.text.spoken import SpokenForm, spoken_parts

SQL = (("SQL", "sequel"), ("MySQL", "my sequel"), ("nginx", "engine x"), ("C++", "C plus plus"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("SQL and MySQL", "sequel and my sequel"),
        ("sql, NoSQL, SQLite", "sql, NoSQL, SQLite"),  # capital letters count; whole words only
        ("NGINX or Nginx.", "engine x or engine x."),  # small ones do not
        ("C++, not C+++", "C plus plus, not C plus plus+"),
        ("", ""),
    ],
)
def test_pronounced_text(text: str, said: str) -> None:
    assert pronounce(text, SQL).spoken == said


def test_the_longest_term_counts() -> None:
    terms = (("new", "nu"), ("new york", "noo yawk"))
    assert pronounce("New York is new.", terms).spoken == "noo yawk is nu."


def test_written_terms_and_figures_stay_one_word() -> None:
    (part,) = SpokenForm("en", "auto", SQL).pieces(TextPart("We run nginx on 3 hosts."))
    assert part.text == "We run engine x on three hosts."
    assert part.labels == (("We", 1), ("run", 1), ("nginx", 2), ("on", 1), ("3", 1), ("hosts.", 1))
    (said,) = spoken_parts("nginx 3", "en", "off", SQL)
    assert said.spoken == "engine x 3"


def test_entries_are_chosen_by_language_and_voice() -> None:
    entries = [
        Pronunciation("Paris", "Pariss"),
        Pronunciation("Paris", "Paree", language="fr-FR"),
        Pronunciation("Paris", "Parri", voice="anna"),
    ]
    assert select(entries, "en", None) == (("Paris", "Pariss"),)
    assert select(entries, "fr", None) == (("Paris", "Paree"),)
    assert select(entries, "fr", "anna") == (("Paris", "Parri"),)


def test_entries_of_a_language_wait_for_it_to_be_detected() -> None:
    entries = [Pronunciation("Paris", "Paree", language="fr-FR"), Pronunciation("Rome", "Roam")]
    found = select(entries, "auto", None)
    assert found == (("Paris", "Paree", "fr-FR"), ("Rome", "Roam"))
    read = json.loads(json.dumps(found))
    for language, said in (("fr", "Paree, Roam"), ("en", "Paris, Roam")):
        kept = Options(pronunciations=read).pronunciations
        (part,) = spoken_parts("Paris, Rome", language, "off", kept)
        assert part.spoken == said
    asked = merged(found, [("Paris", "Paris?"), ("Paris", "Pari", "fr-FR"), ("Rome", "Roma")])
    assert in_language(asked, "fr") == (("Paris", "Pari"), ("Rome", "Roma"))
    assert in_language(asked, "en") == (("Paris", "Paris?"), ("Rome", "Roma"))
    wrong = (("a", "b", "en", "x"),)
    with pytest.raises(OptionError, match="language as third"):
        Options(pronunciations=wrong)  # type: ignore[arg-type]


def test_a_file_of_pronunciations(tmp_path: Path) -> None:
    file = tmp_path / "pronunciations.toml"
    assert read_file(file) == []
    file.write_text('[[pronunciation]]\nterm = "SQL"\nreplacement = "sequel"\nvoice = "anna"\n')
    assert read_file(file) == [Pronunciation("SQL", "sequel", None, "anna")]
    for wrong in (
        "[[pronunciation]]\nterm = 3",
        "term =",
        "pronunciation = 3",
        '[[pronunciation]]\nx="y"',
    ):
        file.write_text(wrong)
        with pytest.raises(OptionError, match=r"pronunciations\.toml"):
            read_file(file)


def test_pronunciations_are_bounded() -> None:
    assert Options(pronunciations=[["a", "b"]]).pronunciations == (("a", "b"),)  # type: ignore[arg-type]
    for wrong in (
        [["a"]],
        [["", "b"]],
        [["a", " "]],
        [["a", "b" * 201]],
        [["a", 3]],
        7,
        [["a", "b"]] * 1001,
    ):
        with pytest.raises(OptionError, match="pronunciations must be"):
            Options(pronunciations=wrong)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="no list"):
        parse_entries({}, "a request")


def test_an_empty_pronunciation_is_refused_with_its_file(tmp_path: Path) -> None:
    file = tmp_path / "pronunciations.toml"
    file.write_text('[[pronunciation]]\nterm = "SQL"\nreplacement = " "\n')
    with pytest.raises(OptionError, match=r"pronunciations\.toml, entry 1: replacement must have"):
        read_file(file)
