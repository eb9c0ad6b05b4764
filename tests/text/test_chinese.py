"""Chinese: Cangjie spelling and word separation, with and without what they need."""

from __future__ import annotations

import json
import re
import shutil
import warnings
from pathlib import Path

import pytest

from nightingale.errors import CorruptFileError, NotPulledError
from nightingale.text.chinese import read_table, separate_words, spell
from nightingale.text.languages import LanguageWarning
from tests.text.conftest import Uninstall

SPELLED = [
    ("日", "[cj_a][cj_.]"),
    ("曰", "[cj_a][cj_1][cj_.]"),  # shares its code with the one before
    ("干于士", "[cj_m][cj_j][cj_.][cj_m][cj_j][cj_1][cj_.][cj_m][cj_j][cj_2][cj_.]"),
    ("明 月", "[cj_a][cj_b][cj_.] [cj_b][cj_.]"),
    ("鑫", "鑫"),  # not in the table
    ("あア", "あア"),
    ("a1,。", "a1,。"),
]


@pytest.mark.parametrize(("text", "expected"), SPELLED)
def test_characters_become_their_codes(text: str, expected: str, files: Path) -> None:
    assert spell(text, read_table(files / "cangjie.json")) == expected


def _table(path: Path, lines: object) -> Path:
    path.write_text(json.dumps(lines), encoding="utf-8")
    return path


def test_the_eleventh_of_one_code_gets_two_digits(tmp_path: Path) -> None:
    lines = [f"{character}\tx" for character in "一丁七丈三上下不丐丑且"]
    table = read_table(_table(tmp_path / "table.json", lines))
    assert spell("且", table) == "[cj_x][cj_1][cj_0][cj_.]"


def test_a_character_listed_twice_takes_the_later_code(tmp_path: Path) -> None:
    table = read_table(_table(tmp_path / "table.json", ["日\ta", "日\tb", "月\ta\tignored"]))
    assert spell("日月", table) == "[cj_b][cj_.][cj_a][cj_1][cj_.]"


def test_only_letters_are_looked_up(tmp_path: Path) -> None:
    table = read_table(_table(tmp_path / "table.json", ["。\ta", "〇\tb"]))
    assert spell("。〇", table) == "。〇"


@pytest.mark.parametrize("path", [None, Path("nowhere/Cangjie5_TC.json")])
def test_a_missing_table_is_named_with_the_command(path: Path | None) -> None:
    with pytest.raises(NotPulledError, match=r"Cangjie5_TC\.json.*`nightingale pull`"):
        read_table(path)


@pytest.mark.parametrize("lines", [["日"], [1], 5, "日\ta", {"日": "a"}])
def test_a_table_of_another_form_is_refused_by_name(lines: object, tmp_path: Path) -> None:
    with pytest.raises(CorruptFileError, match=r"table\.json"):
        read_table(_table(tmp_path / "table.json", lines))


@pytest.mark.slow
@pytest.mark.usefixtures("separator")
def test_words_are_set_apart_without_any_download(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.socket", None)
    assert separate_words("今天天气很好 。") == "今天 天气 很 好 。"


def test_without_the_package_the_words_stay_and_the_extra_is_named(uninstall: Uninstall) -> None:
    uninstall("spacy_pkuseg")
    with pytest.warns(LanguageWarning, match=r"pip install 'nightingale-tts\[chinese\]'"):
        assert separate_words("今天天气很好") == "今天天气很好"


@pytest.mark.parametrize("left_out", ["features.msgpack", "weights.npz"])
def test_without_the_model_the_words_stay_and_nothing_is_downloaded(
    left_out: str, separator_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("socket.socket", None)
    shutil.copytree(separator_home / "spacy_ontonotes", tmp_path / "spacy_ontonotes")
    (tmp_path / "spacy_ontonotes" / left_out).unlink()
    with pytest.warns(LanguageWarning, match=re.escape("spacy_pkuseg.pkuseg()")):
        assert separate_words("今天天气很好") == "今天天气很好"


def test_a_warning_is_shown_once_wherever_it_comes_from() -> None:
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("default")
        separate_words("今天")
        separate_words("明天")
    assert len(shown) == 1
