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


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ("en-US", "en"), ("en_US", "en"), ("EN_gb", "en"), ("en_US.UTF-8", "en"), ("english", "en"),
        ("de-DE", "de"), ("de-CH-1996", "de"), ("German", "de"), ("ger", "de"), ("deu", "de"),
        ("de_DE@euro", "de"), (" de ", "de"),
        ("zh-Hans-CN", "zh"), ("zh_TW", "zh"), ("cmn", "zh"), ("zho", "zh"), ("Mandarin", "zh"),
        ("nb-NO", "no"), ("nn", "no"), ("no-NO", "no"), ("nor", "no"), ("Norwegian", "no"),
        ("iw", "he"), ("he-IL", "he"), ("msa", "ms"), ("ms-MY", "ms"), ("pt-BR", "pt"),
        ("es-419", "es"), ("jpn", "ja"), ("sr", None), ("eng-US", "en"),
    ],
)  # fmt: skip
def test_locales_names_and_three_letter_codes_are_languages(given: str, code: str | None) -> None:
    if code is None:
        with pytest.raises(LanguageError):
            check_language(given, LANGUAGES)
    else:
        assert check_language(given, LANGUAGES) == code


def test_every_language_is_known_by_its_english_name() -> None:
    assert [check_language(name, LANGUAGES) for name in LANGUAGES.values()] == [*LANGUAGES]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("de-DE", "does not speak 'de-DE' (German); it speaks: en; for another"),
        ("frensh", "(did you mean fr, French?)"),
        ("yue-HK", "does not speak 'yue-HK'; it speaks"),  # Cantonese is not Mandarin
        ("x" * 10_000, "does not speak"),
    ],
)
def test_a_language_of_another_model_is_named_and_a_slip_is_guessed(
    given: str, message: str
) -> None:
    with pytest.raises(LanguageError) as caught:
        check_language(given, ("en",))
    assert message in str(caught.value)


@pytest.mark.parametrize("language", ["xx", "", "en us", "e", "1", "-en", "en-"])
def test_an_unknown_language_is_answered_with_all_23(language: str) -> None:
    with pytest.raises(LanguageError) as caught:
        check_language(language, LANGUAGES)
    assert repr(language) in str(caught.value)
    assert ", ".join(LANGUAGES) in str(caught.value)
