"""Language steps: what changes, what stays, and what is said when a package is not there."""

from __future__ import annotations

from unicodedata import normalize as unicode_form

import pytest

from nightingale.errors import LanguageError, MissingPackageError
from nightingale.text.languages import LANGUAGES, LanguageWarning, check_language, prepare
from tests.text.conftest import Uninstall

JAPANESE = [
    ("東京", "とうきょう"),
    ("東京タワー", "とうきょうタワー"),  # katakana stays
    ("歯が痛い", " はがいたい"),  # a reading that starts with は gets a space
    ("部屋", " へや"),
    ("はい", "はい"),  # only readings of kanji do
    ("コーヒー", "コーヒー"),
    ("ok 明日!", "ok あした!"),
]


@pytest.mark.parametrize(("text", "expected"), JAPANESE)
def test_kanji_become_their_reading_in_nfkd(text: str, expected: str) -> None:
    assert prepare(unicode_form("NFKD", text), "ja") == unicode_form("NFKD", expected)


def test_korean_loses_spaces_at_the_ends_only() -> None:
    assert prepare(" \u1112\u1161 \u11ab ", "ko") == "\u1112\u1161 \u11ab"


WITH_A_STEP = {"zh", "ja", "ko", "he", "ru"}


@pytest.mark.parametrize("language", [None, *(c for c in LANGUAGES if c not in WITH_A_STEP)])
def test_other_languages_need_nothing(language: str | None) -> None:
    assert prepare(" Ab 漢 й\u0301 ", language) == " Ab 漢 й\u0301 "


@pytest.mark.parametrize(("language", "missing"), [("he", "vowel points"), ("ru", "stress marks")])
def test_hebrew_and_russian_pass_with_a_warning(language: str, missing: str) -> None:
    with pytest.warns(LanguageWarning, match=f"without {missing}"):
        assert prepare(" abc ", language) == " abc "


def test_japanese_without_pykakasi_names_the_extra(uninstall: Uninstall) -> None:
    uninstall("pykakasi")
    with pytest.raises(MissingPackageError, match=r"pip install 'nightingale-tts\[japanese\]'"):
        prepare("東京", "ja")


def test_there_are_23_languages() -> None:
    assert len(LANGUAGES) == 23
    assert list(LANGUAGES) == sorted(LANGUAGES)


@pytest.mark.parametrize(
    ("given", "code"), [("zh", "zh"), ("ZH", "zh"), ("Fr", "fr"), (None, None)]
)
def test_codes_are_read_in_either_case(given: str | None, code: str | None) -> None:
    assert check_language(given, LANGUAGES) == code


@pytest.mark.parametrize("language", ["xx", "", "en-us", "english"])
def test_an_unknown_language_is_answered_with_all_23(language: str) -> None:
    with pytest.raises(LanguageError) as caught:
        check_language(language, LANGUAGES)
    assert repr(language) in str(caught.value)
    assert ", ".join(LANGUAGES) in str(caught.value)
