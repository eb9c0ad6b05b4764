"""The English and the Multilingual tokenizer, on small files of the released format."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

from nightingale.errors import CorruptFileError, LanguageError, NotPulledError, TextError
from nightingale.text.languages import LANGUAGES
from nightingale.text.tokenizer import (
    EnglishTokenizer,
    FledglingTokenizer,
    Gpt2Tokenizer,
    MultilingualTokenizer,
    TextTokenizer,
)
from tests.text.conftest import Uninstall
from tests.text.make_tokenizers import KNOWN_IDS, KNOWN_TEXT

quiet = pytest.mark.filterwarnings("ignore::nightingale.text.languages.LanguageWarning")

ENGLISH = [
    ("Hi there", "H i [SPACE] the re ."),
    ("hi", "H i ."),
    ("The [laughter] end…", "The [SPACE] [laughter] [SPACE] en d ,"),
    ("[LAUGHTER]", "[UNK] L A U G H T E R [UNK] ."),  # case is kept
    ("é", "[UNK] ."),
    ("So; on", "S o , [SPACE] [SPACE] on ."),
]
MULTILINGUAL = [
    (None, "Hi there", "h i [SPACE] the re ."),
    ("en", "Hi there", "[en] h i [SPACE] the re ."),
    ("EN", "Hi there", "[en] h i [SPACE] the re ."),
    ("en", "ok [LAUGHTER]", "[en] o k [SPACE] [laughter] ."),  # small letters make it the token
    ("en", "ok [fr]", "[en] o k [SPACE] [fr] ."),
    ("fr", "Été：", "[fr] e\u0301 t e\u0301 : ."),  # NFKD comes after the punctuation rules
    ("es", "½", "[es] 1 [UNK] 2 ."),
    ("tr", "İ", "[tr] i \u0307 ."),
    ("ru", "Сто", "[ru] сто ."),
    ("he", "של", "[he] של ."),
    ("ko", "한이", "[ko] \u1112\u1161\u11ab \u110b\u1175 ."),
    ("ko", "¨가", "[ko] \u0308 \u1100 \u1161 ."),  # NFKD leaves a space in front, which goes
    ("fr", "¨a", "[fr] [SPACE] \u0308 a ."),
    ("ja", "学生。", "[ja] か\u3099 く せ い 。"),
    ("zh", "日曰。", "[zh] [cj_a] [cj_.] [cj_a] [cj_1] [cj_.] 。"),
]
FULL_CASE = [
    ("en", "the THE", "[en] the [SPACE] T H E ."),
    ("en", "ok [LAUGHTER]", "[en] o k [SPACE] [UNK] L A U G H T E R [UNK] ."),
    ("fr", "Été：", "[fr] E \u0301 t e\u0301 : ."),
    ("zh", "日曰。", "[zh] [cj_a] [cj_.] [cj_a] [cj_1] [cj_.] 。"),
    ("ko", "¨가", "[ko] [SPACE] \u0308 \u1100 \u1161 ."),
    ("ja", "一。", "[ja] 一 。"),
]


def _pieces(file: Path, ids: list[int]) -> str:
    names = Tokenizer.from_file(str(file))
    return " ".join(str(names.id_to_token(number)) for number in ids)


@pytest.mark.parametrize(("text", "expected"), ENGLISH)
def test_english_pieces(text: str, expected: str, english: EnglishTokenizer, files: Path) -> None:
    ids = english.encode(text, "en")
    assert _pieces(files / "english.json", ids) == f"[START] {expected} [STOP]"
    assert english.encode(text) == ids


@quiet
@pytest.mark.parametrize(("language", "text", "expected"), MULTILINGUAL)
def test_multilingual_pieces(
    language: str | None,
    text: str,
    expected: str,
    multilingual: MultilingualTokenizer,
    files: Path,
) -> None:
    ids = multilingual.encode(text, language)
    assert _pieces(files / "multilingual.json", ids) == f"[START] {expected} [STOP]"


@pytest.mark.usefixtures("separator")
def test_spaces_between_chinese_words_become_tokens(
    multilingual: MultilingualTokenizer, files: Path
) -> None:
    pieces = _pieces(files / "multilingual.json", multilingual.encode("我们去北京。", "zh"))
    words = pieces.removeprefix("[START] [zh] ").split(" [SPACE] ")
    assert [word.count("[cj_.]") for word in words] == [2, 1, 2, 0]


@quiet
@pytest.mark.parametrize(("language", "text", "expected"), FULL_CASE)
def test_full_case_pieces_of_multilingual_v3(
    language: str | None, text: str, expected: str, files: Path, uninstall: Uninstall
) -> None:
    uninstall("pykakasi")  # V3 reads kanji as they are
    tokenizer = MultilingualTokenizer(
        files / "multilingual.json", files / "cangjie.json", "full_case"
    )
    pieces = _pieces(files / "multilingual.json", tokenizer.encode(text, language))
    assert pieces == f"[START] {expected} [STOP]"
    read = tokenizer.readable(text, language)
    assert (read.text == text) == ("[UNK]" not in expected)


def test_languages_beyond_the_23_are_those_that_the_file_has_tags_for(
    files: Path, tmp_path: Path
) -> None:
    content = (files / "multilingual.json").read_text(encoding="utf-8")
    (tmp_path / "tuned.json").write_text(content.replace("[MASK]", "[cs]"), encoding="utf-8")
    tuned = MultilingualTokenizer(tmp_path / "tuned.json")
    assert tuned.languages == (*LANGUAGES, "cs")
    assert "[cs] n o" in _pieces(tmp_path / "tuned.json", tuned.encode("No", "cs"))
    assert tuned.readable("No", "cs").text == "No"
    with pytest.raises(LanguageError, match="does not speak 'hu'"):
        tuned.encode("No", "hu")


def _files_with_the_known_pieces() -> list[Any]:
    home = Path(os.environ.get("HF_HOME", "~/.cache/huggingface")).expanduser()
    pattern = "hub/models--ResembleAI--chatterbox/snapshots/*/grapheme_mtl_merged_expanded_v1.json"
    released = [pytest.param(path, id="released") for path in home.glob(pattern)]
    return [pytest.param(None, id="small"), *released]


@pytest.mark.parametrize("released", _files_with_the_known_pieces())
def test_the_known_text_has_the_known_ids(released: Path | None, files: Path) -> None:
    """The only ids of the released file that are known to us.

    With the small file, which was given these pieces and ids, this proves the steps around the
    vocabulary (case, tag, spaces, full stop, merging) and nothing about the released vocabulary.
    The case "released" runs only where that file has been pulled, and proves the rest.
    """
    tokenizer = MultilingualTokenizer(released or files / "multilingual.json")
    assert tokenizer.encode(KNOWN_TEXT, "en") == [255, *KNOWN_IDS, 0]


def test_an_unknown_language_is_refused_with_the_list(multilingual: MultilingualTokenizer) -> None:
    with pytest.raises(LanguageError, match=", ".join(LANGUAGES)):
        multilingual.encode("Hello", "xx")


@pytest.mark.parametrize("language", ["fr", "xx", ""])
def test_models_of_one_language_refuse_the_others(
    language: str, english: EnglishTokenizer, turbo: Gpt2Tokenizer
) -> None:
    for tokenizer in (english, turbo):
        with pytest.raises(LanguageError, match=r"it speaks: en; .* Multilingual"):
            tokenizer.encode("Bonjour", language)


def test_a_language_that_the_file_has_no_tag_for_is_refused(files: Path) -> None:
    with pytest.raises(LanguageError, match=re.escape("[fr]")):
        MultilingualTokenizer(files / "english.json").encode("Bonjour", "fr")


def test_chinese_without_a_table_is_refused_and_others_are_not(files: Path) -> None:
    tokenizer = MultilingualTokenizer(files / "multilingual.json")
    assert tokenizer.encode("Hello", "en")
    with pytest.raises(NotPulledError, match=r"Cangjie5_TC\.json"), pytest.warns():
        tokenizer.encode("你好", "zh")


def test_building_needs_no_extra_and_no_network(
    files: Path, uninstall: Uninstall, monkeypatch: pytest.MonkeyPatch
) -> None:
    uninstall("pykakasi")
    uninstall("spacy_pkuseg")
    monkeypatch.setattr("socket.socket", None)
    cangjie = files / "cangjie.json"
    tokenizers: list[TextTokenizer] = [
        EnglishTokenizer(files / "english.json"),
        MultilingualTokenizer(files / "multilingual.json", cangjie),
        Gpt2Tokenizer(files / "gpt2"),
    ]
    assert all(tokenizer.encode("Hello", "en") for tokenizer in tokenizers)


@pytest.mark.parametrize("text", ["", "  "])
def test_an_empty_text_is_refused(
    text: str, english: EnglishTokenizer, multilingual: MultilingualTokenizer, turbo: Gpt2Tokenizer
) -> None:
    for tokenizer in (english, multilingual, turbo):
        with pytest.raises(TextError, match="nothing to say"):
            tokenizer.encode(text, "en")


def test_2048_tokens_fit_and_one_more_is_refused(
    english: EnglishTokenizer, multilingual: MultilingualTokenizer
) -> None:
    assert len(english.encode("z" * 2047 + ".")) == 2 + 2048
    assert len(multilingual.encode("z" * 2046 + ".", "en")) == 2 + 2048
    with pytest.raises(TextError, match=r"2049 tokens long.* at most 2048"):
        english.encode("z" * 2048 + ".")


def _renamed(files: Path, old: str, new: str) -> str:
    return (files / "english.json").read_text(encoding="utf-8").replace(old, new)


def test_a_missing_file_is_named_with_the_command(tmp_path: Path) -> None:
    with pytest.raises(NotPulledError, match=r"none\.json.*`nightingale pull`"):
        EnglishTokenizer(tmp_path / "none.json")


@pytest.mark.parametrize("content", ["", "{", "{}", "[1]", '{"model": {"type": "BPE"}}'])
def test_another_file_is_refused_by_name(content: str, tmp_path: Path) -> None:
    (tmp_path / "odd.json").write_text(content, encoding="utf-8")
    with pytest.raises(CorruptFileError, match=r"odd\.json"):
        MultilingualTokenizer(tmp_path / "odd.json")


def test_a_file_that_is_not_text_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "odd.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(CorruptFileError, match=r"odd\.json is not text"):
        MultilingualTokenizer(tmp_path / "odd.json")


@pytest.mark.parametrize("token", ["[START]", "[STOP]"])
def test_a_file_without_start_or_stop_is_refused(token: str, files: Path, tmp_path: Path) -> None:
    (tmp_path / "odd.json").write_text(_renamed(files, token, "[OTHER]"), encoding="utf-8")
    with pytest.raises(CorruptFileError, match=re.escape(token)):
        EnglishTokenizer(tmp_path / "odd.json")


@pytest.mark.parametrize("token", ["[START]", "[STOP]"])
def test_a_file_with_other_ids_for_them_is_refused(token: str, files: Path, tmp_path: Path) -> None:
    content = json.loads((files / "english.json").read_text(encoding="utf-8"))
    vocab = content["model"]["vocab"]
    vocab[token], vocab["[PAD]"] = vocab["[PAD]"], vocab[token]
    content["added_tokens"] = []
    (tmp_path / "odd.json").write_text(json.dumps(content), encoding="utf-8")
    with pytest.raises(CorruptFileError, match=re.escape(f"{token} the id 705")):
        EnglishTokenizer(tmp_path / "odd.json")


texts = st.text(max_size=120).filter(str.strip)


@pytest.mark.slow
@quiet
@settings(deadline=None, max_examples=400)
@given(text=texts, language=st.sampled_from([None, *LANGUAGES]))
def test_any_text_in_any_language_gives_ids_of_the_vocabulary(
    text: str, language: str | None, files: Path
) -> None:
    file = files / "multilingual.json"
    ids = MultilingualTokenizer(file, files / "cangjie.json").encode(text, language)
    assert (ids[0], ids[-1]) == (255, 0)
    assert set(ids) <= set(Tokenizer.from_file(str(file)).get_vocab().values())


@pytest.mark.slow
@pytest.mark.usefixtures("separator")
@settings(deadline=None)
@given(text=texts)
def test_any_text_can_be_separated_into_chinese_words(
    text: str, multilingual: MultilingualTokenizer
) -> None:
    assert multilingual.encode(text, "zh")[:2] == multilingual.encode("a", "zh")[:2]


@pytest.mark.slow
@settings(deadline=None)
@given(text=texts)
def test_any_text_gives_ids_of_the_english_vocabulary(text: str, files: Path) -> None:
    file = files / "english.json"
    ids = EnglishTokenizer(file).encode(text)
    assert set(ids) <= set(Tokenizer.from_file(str(file)).get_vocab().values())


@given(text=texts)
def test_any_text_gives_ids_of_the_turbo_vocabulary(text: str, turbo: Gpt2Tokenizer) -> None:
    assert set(turbo.encode(text)) <= set(turbo._tokenizer.get_vocab().values())


def test_the_small_models_tokenizer_spells_what_it_has_not_read(
    files: Path, english: EnglishTokenizer
) -> None:
    fledgling = FledglingTokenizer(files / "english.json")
    assert fledgling.encode("Café 7 X") == english.encode("Cafe seven ex")
    assert fledgling.encode("The reef.") == english.encode("The reef.")
