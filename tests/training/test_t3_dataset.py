"""What T3 is shown: phonemes, letters, tokens, and where in the text it is."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from nightingale.core import END_OF_SPEECH
from nightingale.text.tokenizer import FledglingTokenizer
from training import phonemes, speakers, t3_dataset, text_tokenizer
from training.batch import IGNORED
from training.t3_dataset import PhonemeDataset, count, encode


@pytest.fixture
def tokenizer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FledglingTokenizer:
    monkeypatch.setattr(text_tokenizer, "FILE", tmp_path / "tokenizer.json")
    monkeypatch.setattr(phonemes, "FILE", tmp_path / "pronunciations.txt")
    monkeypatch.setattr(speakers, "VECTORS", tmp_path / "vectors")
    (tmp_path / "vectors").mkdir()
    np.save(tmp_path / "vectors" / "heart.npy", np.eye(3, 256, dtype=np.float32))
    phonemes.FILE.write_text("cat K AE1 T\nsat S AE1 T\n")
    text_tokenizer.main()
    return t3_dataset.text_tokenizer_with_phonemes()


def _speak(file: Path, *texts: str) -> Path:
    rows = []
    for number, text in enumerate(texts):
        words = text.split()
        tokens = list(range(10, 10 + 5 * len(words)))
        ends = [5 * (i + 1) for i in range(len(words))]
        rows.append({"id": str(number), "text": text, "tokens": tokens, "ends": ends})
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def test_a_share_of_the_words_keeps_its_letters(tokenizer: FledglingTokenizer) -> None:
    text = "The cat sat."
    sounds, spelled = (encode(tokenizer, text, "1", share) for share in (0.0, 1.0))
    assert sounds == tokenizer.encode(text)
    assert spelled == FledglingTokenizer(text_tokenizer.FILE).encode(text)
    drawn = [tuple(encode(tokenizer, text, str(key), 0.5)) for key in range(30)]
    assert len(set(drawn)) == 4  # each of two words either way
    assert drawn == [tuple(encode(tokenizer, text, str(key), 0.5)) for key in range(30)]


@pytest.mark.usefixtures("tokenizer")
def test_batches_hold_every_text_once(tmp_path: Path) -> None:
    texts = ["The cat sat.", "The cat sat.", "A cat.", "The old man sat on a cat.", "Yes."] * 3
    dataset = PhonemeDataset([_speak(tmp_path / "heart.jsonl", *texts)], n_positions=120)
    assert sum(map(len, dataset.batches)) == len(texts)
    assert sum(map(count, dataset.batches)) == sum(5 * len(text.split()) for text in texts)
    for rows in dataset.batches:
        assert len({len(example.ids) for example in rows}) == 1


@pytest.mark.usefixtures("tokenizer")
def test_other_voices_are_repeated_and_have_their_own_vectors(tmp_path: Path) -> None:
    np.save(tmp_path / "vectors" / "emma.npy", -np.eye(3, 256, dtype=np.float32))
    first = _speak(tmp_path / "heart.jsonl", *["The cat sat.", "A cat."] * 40)
    other = _speak(tmp_path / "emma.jsonl", "The cat sat.", "A cat.")
    dataset = PhonemeDataset([first], 120, spelled=0.0, others=[other])
    said = [e.voice for batch in dataset.batches for e in batch]
    assert said.count("heart") == 80
    assert said.count("emma") == 2 * t3_dataset.MAX_TIMES
    for rows in dataset.batches:
        assert sum(e.voice == "emma" for e in rows) <= 1
        speaker = dataset.make(rows, np.random.default_rng(1)).speaker.sum(1)
        assert speaker.tolist() == [-1.0 if e.voice == "emma" else 1.0 for e in rows]


@pytest.mark.usefixtures("tokenizer")
def test_a_batch_shows_what_is_said_and_where(tmp_path: Path) -> None:
    dataset = PhonemeDataset([_speak(tmp_path / "heart.jsonl", "The cat sat.")], 500, spelled=0.0)
    batch = dataset.batch(0)
    assert batch.speech[0].tolist() == [*range(10, 25), END_OF_SPEECH]
    assert batch.wanted[0].tolist() == batch.speech[0].tolist()
    assert (batch.place[0].diff() >= 0).all()
    # behind five tokens the first word is over: start, t, h, e, space
    assert batch.place[0, 4] < 5 < batch.place[0, 5]
    again = dataset.batch(0)
    assert all(torch.equal(getattr(batch, n), getattr(again, n)) for n in ("prompt", "speaker"))


@pytest.mark.usefixtures("tokenizer")
def test_nothing_behind_the_end_is_learned(tmp_path: Path) -> None:
    file = _speak(tmp_path / "heart.jsonl", "The cat.", "Tea cat a.")
    rows = file.read_text().splitlines()
    file.write_text("\n".join(rows) + '\n{"id": "2", "te')  # one is still being written
    dataset = PhonemeDataset([file], 500, spelled=1.0)
    assert sum(map(len, dataset.batches)) == 2
    for rows_of in dataset.batches:
        batch = dataset.make(rows_of, np.random.default_rng(1))
        for row, example in enumerate(rows_of):
            assert (batch.wanted[row, len(example.tokens) + 1 :] == IGNORED).all()
