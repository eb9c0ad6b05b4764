"""What is kept of the fast voice, and where it goes on."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from nightingale.core import SAMPLES_PER_TOKEN
from training.texts import Text
from training.token_corpus import SpokenText, load_tokenizer, resume_point, to_json_line, tokens_of

TEXT = Text("wide-000007", "Hello there.", "chat", "train")


def _recital(phonemes: str, n_words: int) -> SpokenText:
    ends = [SAMPLES_PER_TOKEN * 4 * (i + 1) for i in range(n_words)]
    return SpokenText(phonemes, np.zeros(9600, np.int16), ends)


def test_ends_are_kept_where_words_are_one_to_one() -> None:
    row = json.loads(to_json_line(TEXT, _recital("həlˈO ðˈɛɹ.", 2), list(range(9))))
    assert row["ends"] == [4, 8]
    assert (row["id"], row["text"], row["tokens"]) == (TEXT.id, TEXT.text, list(range(9)))
    row = json.loads(to_json_line(TEXT, _recital("həlˈOðˌɛɹ.", 1), list(range(9))))
    assert row["ends"] == []


def test_no_word_ends_behind_the_last_token() -> None:
    assert json.loads(to_json_line(TEXT, _recital("həlˈO ðˈɛɹ.", 2), list(range(6))))["ends"] == [
        4,
        6,
    ]


def test_a_line_that_was_cut_off_is_dropped_and_said_again(tmp_path: Path) -> None:
    file = tmp_path / "heart.jsonl"
    assert resume_point(file) == (0, None)
    whole = to_json_line(TEXT, _recital("həlˈO ðˈɛɹ.", 2), list(range(9)))
    file.write_text(whole + whole.replace("000007", "000008") + whole[:30], encoding="utf-8")
    assert resume_point(file) == (18, "wide-000008")
    assert file.read_text(encoding="utf-8").endswith("}\n")
    assert resume_point(file) == (18, "wide-000008")


def test_tokens_are_whole_and_those_of_the_tokenizer_that_ships() -> None:
    wave = (3000 * np.sin(np.arange(10 * SAMPLES_PER_TOKEN + 500) / 20)).astype(np.int16)
    tokens = tokens_of(load_tokenizer(), wave)
    assert len(tokens) == 10
    assert all(0 <= token < 6561 for token in tokens)
