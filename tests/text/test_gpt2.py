"""Turbo's and Nano's tokenizer: pieces, tags and their spaces, and files that are not right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from nightingale.errors import CorruptFileError, NotPulledError, TextError
from nightingale.text.tokenizer import Gpt2Tokenizer
from tests.text.make_gpt2 import END, gpt2

FILES = [
    "vocab.json",
    "merges.txt",
    "added_tokens.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
]
PIECES = [
    ("Hello there.", "He|llo|Ġthe|re|."),
    ("  Hello  there.", "He|llo|Ġthe|re|."),
    ("hello\nthere", "He|llo|Ġthe|re|."),
    ("Né 19.", "N|Ã©|Ġ|19|."),
    ("A [cough] b.", "A|Ġ|[cough]|Ġ|b|."),
    ("A[cough]b.", "A|[|c|ou|g|h|]|b|."),  # a whole word only
    ("A [sigh] b.", "A|[sigh]|Ġ|b|."),  # takes the space before it
    ("A [gasp] b.", "A|Ġ|[gasp]|b|."),  # behind it
    ("A [laugh] b.", "A|[laugh]|b|."),  # both
    ("A [clear throat]", "A|Ġ|[clear throat]|."),
    ("A - b; c...", "A|Ġ|-|Ġ|b|;|Ġ|c|..|."),  # punctuation that the other models change
    ("A [LAUGH]", "A|Ġ|[|L|A|U|G|H|]|."),
    (f"A {END}", f"A|Ġ|{END}|."),
]


def _pieces(tokenizer: Gpt2Tokenizer, text: str) -> str:
    return "|".join(str(tokenizer._tokenizer.id_to_token(n)) for n in tokenizer.encode(text))


@pytest.mark.parametrize(("text", "expected"), PIECES)
def test_pieces(text: str, expected: str, turbo: Gpt2Tokenizer) -> None:
    assert _pieces(turbo, text) == expected


def test_older_files_give_tags_no_say_over_spaces(tmp_path: Path) -> None:
    tokenizer = Gpt2Tokenizer(gpt2(tmp_path, with_decoder=False))
    assert _pieces(tokenizer, "A [laugh] b[cough]") == "A|Ġ|[laugh]|Ġ|b|[cough]|."
    assert _pieces(tokenizer, f"A {END}") == f"A|Ġ|{END}|."


def test_a_text_longer_than_the_file_allows_is_refused(tmp_path: Path) -> None:
    tokenizer = Gpt2Tokenizer(gpt2(tmp_path, model_max_length=10))
    assert len(tokenizer.encode("z" * 9 + ".")) == 10
    with pytest.raises(TextError, match=r"11 tokens long.* at most 10"):
        tokenizer.encode("z" * 10 + ".")


@pytest.mark.parametrize("bound", [10**30, 1e30, 4096, None])
def test_no_file_allows_more_than_2048_tokens(bound: float | None, tmp_path: Path) -> None:
    tokenizer = Gpt2Tokenizer(gpt2(tmp_path, model_max_length=bound))
    with pytest.raises(TextError, match=r"2049 tokens long.* at most 2048"):
        tokenizer.encode("z" * 2048 + ".")


@pytest.mark.parametrize("name", FILES)
def test_a_missing_file_is_named(name: str, tmp_path: Path) -> None:
    (gpt2(tmp_path) / name).unlink()
    with pytest.raises(NotPulledError, match=name):
        Gpt2Tokenizer(tmp_path)


@pytest.mark.parametrize("content", ["Ġ t h", "{", "[1]", '"x"'])
@pytest.mark.parametrize("name", FILES)
def test_a_file_of_another_kind_is_named(name: str, content: str, tmp_path: Path) -> None:
    (gpt2(tmp_path) / name).write_text(content, encoding="utf-8")
    with pytest.raises(CorruptFileError, match=name):
        Gpt2Tokenizer(tmp_path)


def _change(path: Path, **changes: Any) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}), encoding="utf-8")


WRONG_CONFIGS: list[tuple[dict[str, Any], str]] = [
    ({"add_bos_token": True}, "start or end tokens"),
    ({"add_eos_token": True}, "start or end tokens"),
    ({"model_max_length": "many"}, "model_max_length 'many'"),
    ({"model_max_length": 0}, "model_max_length 0"),
    ({"added_tokens_decoder": {"x": {"content": "[a]"}}}, "describes no token"),
    ({"added_tokens_decoder": {"9": "[a]"}}, "describes no token"),
    ({"added_tokens_decoder": ["[a]"]}, "describes no token"),
    ({"added_tokens_decoder": {}}, "'\\[clear throat\\]' the id"),
]


@pytest.mark.parametrize(("changes", "complaint"), WRONG_CONFIGS)
def test_a_wrong_config_is_refused(changes: dict[str, Any], complaint: str, tmp_path: Path) -> None:
    _change(gpt2(tmp_path) / "tokenizer_config.json", **changes)
    with pytest.raises(CorruptFileError, match=rf"tokenizer_config\.json.*{complaint}"):
        Gpt2Tokenizer(tmp_path)


def test_a_tag_with_another_id_than_listed_is_refused(tmp_path: Path) -> None:
    _change(gpt2(tmp_path) / "added_tokens.json", **{"[laugh]": 9000})
    with pytest.raises(CorruptFileError, match=r"added_tokens\.json.*'\[laugh\]' the id 9000"):
        Gpt2Tokenizer(tmp_path)


def test_a_vocabulary_without_all_bytes_is_refused(tmp_path: Path) -> None:
    path = gpt2(tmp_path) / "vocab.json"
    vocab = json.loads(path.read_text())
    del vocab["z"], vocab["Z"]
    path.write_text(json.dumps(vocab))
    with pytest.raises(CorruptFileError, match=r"vocab\.json lacks 2 of the 256"):
        Gpt2Tokenizer(tmp_path)


def test_merges_of_unknown_pieces_are_refused(tmp_path: Path) -> None:
    (gpt2(tmp_path) / "merges.txt").write_text("#version: 0.2\nz z\n")
    with pytest.raises(CorruptFileError, match=r"merges\.txt does not fit vocab\.json"):
        Gpt2Tokenizer(tmp_path)
