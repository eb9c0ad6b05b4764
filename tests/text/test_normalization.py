# ruff: noqa: E501
"""Figures, dates, units and abbreviations are said as words, and timed as they were written."""

from __future__ import annotations

import subprocess
import sys

import pytest
from unicode_rbnf import RbnfEngine
from unicode_rbnf.engine import RulesetNotFoundError

from benchmarks.normalization import fault, fuzz, oracle, unchanged
from nightingale.core import Options
from nightingale.errors import OptionError
from nightingale.text.normalization import LOCALES, normalization_locale, normalize_text, spelling
from nightingale.text.normalization.readers import READERS
from nightingale.text.normalization.rules import NumberRules
from nightingale.text.split import TextPart
from nightingale.text.spoken import SpokenForm
from nightingale.text.structure import Break

SAID = [
    ("en", "$12.50 on May 3rd at 10:45 a.m.", "twelve dollars and fifty cents on May third at ten forty-five a m"),
    ("en", "He paid $1.2 million for 25 kg.", "He paid one point two million dollars for twenty-five kilograms."),
    ("en", "In 1984, 25% of 1,200 left.", "In nineteen eighty-four, twenty-five percent of one thousand two hundred left."),
    ("en", "Henry VIII, World War II", "Henry the Eighth, World War two"),
    ("en", "Mail bob@example.com, see www.example.com/a.", "Mail bob at example dot com, see example dot com slash a."),
    ("en", "Call +1 555-123-4567.", "Call plus one, five five five, one two three, four five six seven."),
    ("en", "MP3 and HTML", "M P three and H T M L"),
    ("en", "No. I said No. 5.", "No. I said number five."),
    ("de", "Am 3. Mai z. B. um 10:45 Uhr für 12,50 €", "Am dritten Mai zum Beispiel um zehn Uhr fünfundvierzig für zwölf Euro fünfzig"),
    ("de", "1.234,5 km in 1 h", "eintausendzweihundertvierunddreißig Komma fünf Kilometer in eine Stunde"),
    ("es", "21 kg", "veintiún kilogramos"),
    ("fr", "1 234,5 km à 10h45", "mille deux cent trente-quatre virgule cinq kilomètres à dix heures quarante-cinq"),
    ("pl", "22 kg, 3. dzień", "dwadzieścia dwa kilogramy, trzeci dzień"),
    ("ru", "22 кг", "двадцать два килограмма"),
    ("zh", "2024年5月3日，25%", "二零二四年五月三日，百分之二十五"),
    ("ja", "10:45に25kg", "十時四十五分に二十五キログラム"),
    ("hi", "₹1,23,456", "एक लाख तेईस हज़ार चार सौ छप्पन भारतीय रुपए"),
    ("ar", "٢٥", "خمسة وعشرون"),
]  # fmt: skip


@pytest.mark.parametrize(("language", "written", "said"), SAID)
def test_normalized_text(language: str, written: str, said: str) -> None:
    assert normalize_text(written, language).spoken == said
    assert fault(language, written) == ""


def test_normalization_of_random_text_has_no_fault() -> None:
    assert fuzz(600, seed=1)["examples"] == []
    assert unchanged(200, seed=1)["changed"] == 0


def test_the_fuzz_finds_a_planted_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(READERS, "clock_time", lambda found, _language: found[0][::-1])
    assert fuzz(400, seed=1)["faults"] > 0


def test_unknown_languages_and_markup_are_left_to_the_byte() -> None:
    text = "12,50 € — [pause:500ms] <break time='5s'/>"
    assert normalize_text(text, None).spoken == text
    assert normalize_text(text, "cs").spoken == text
    assert normalize_text("[pause:500ms]<x y='5'/>", "en").replacements == ()


def test_a_written_amount_stays_one_word() -> None:
    words = normalize_text("Es kostet 12,50 EUR (ca. 10–20 kg).", "de").words()
    assert [word.written for word in words] == ["Es", "kostet", "12,50 EUR", "(ca.", "10–20 kg)."]
    assert words[2].spoken == "zwölf Euro fünfzig"


def test_a_part_that_grows_too_long_is_cut_between_words() -> None:
    part = TextPart(" ".join(str(10**8 + n) for n in range(20)), Break.PARAGRAPH)
    pieces = list(SpokenForm("en", "auto").pieces(part))
    assert len(pieces) > 1
    assert all(len(piece.text) <= 400 for piece in pieces)
    assert " ".join(piece.written for piece in pieces) == part.text
    assert [piece.before for piece in pieces] == [
        Break.PARAGRAPH,
        *[Break.CLAUSE] * (len(pieces) - 1),
    ]


def test_the_option_names_whose_rules_hold() -> None:
    assert normalization_locale("auto", "de-AT") == "de"
    assert normalization_locale("auto", None) is None
    assert normalization_locale("auto", "cs") is None
    assert normalization_locale("off", "de") is None
    assert normalization_locale("en-GB", "de") == "en-GB"
    assert normalization_locale("auto", "en_AU.UTF-8") == "en-GB"  # likewise day first
    assert normalization_locale("en-US", "de") == normalization_locale("auto", "en-CA") == "en"
    assert len(LOCALES) == 23
    with pytest.raises(OptionError, match="no normalization 'xx'"):
        normalization_locale("xx", "en")
    with pytest.raises(OptionError, match="normalization is ''"):
        Options(normalization="")


def test_normalization_imports_no_torch() -> None:
    code = "import sys, nightingale.text.spoken; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.slow
def test_whole_numbers_are_those_of_icu(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [row for row in oracle(1200, seed=2) if row["kind"] == "cardinal"]
    assert len(rows) == 23
    assert all(row["numbers"] == 1200 and not row["disagreements"] for row in rows)
    monkeypatch.setattr(spelling, "cardinal", lambda n, _language: "many" if n == 999 else "")
    assert all(row["disagreements"] for row in oracle(1000, seed=2) if row["kind"] == "cardinal")


def test_british_dates_have_the_day_first() -> None:
    assert normalize_text("03/04/2024", "en-GB").spoken == "April third, twenty twenty-four"
    assert normalize_text("03/04/2024", "en").spoken == "March fourth, twenty twenty-four"
    assert normalize_text("$3 on 13/04/2024", "en-GB").spoken == (
        "three dollars on April thirteenth, twenty twenty-four"
    )


@pytest.mark.parametrize("language", sorted(LOCALES))
def test_rules_of_numbers_are_evaluated_as_by_the_library(language: str) -> None:
    library, rules = RbnfEngine.for_language(language), NumberRules(language)
    names = [name for name in library.rulesets if name.startswith("spellout-")]
    for name in names:
        for number in (0, 1, 21, 100, 1_101, 37_037, 2_000_001):
            try:
                wanted = "".join(library.iter_format_number(number, name))
            except RulesetNotFoundError:
                continue
            if not any(c.isdecimal() for c in wanted):
                wanted = wanted.replace("\u00ad", "").replace("\u200b", "").replace("〇", "零")
                assert rules.spell(number, name) == wanted
