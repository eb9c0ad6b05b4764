"""Words that a model reads as sounds, and what is left to their letters."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from nightingale.errors import CorruptFileError, NotPulledError, TextError
from nightingale.loader import PRONUNCIATIONS, Files, _tokenizer
from nightingale.text.phonemes import PhonemeDictionary, with_s
from nightingale.text.tokenizer import FledglingTokenizer
from nightingale.weights.catalog import find
from nightingale.weights.manifest import BUNDLE

LINES = """\
B B IY1
A EY1
boss B AO1 S
cat K AE1 T
ten T EH1 N
"""
SOUND = re.compile(r"[A-Z]+[012]?")


@pytest.fixture
def reader(tmp_path: Path) -> FledglingTokenizer:
    return FledglingTokenizer(*_files(tmp_path))


def _files(folder: Path) -> tuple[Path, Path]:
    """The tokenizer that ships, with few words."""
    tokenizer, dictionary = folder / "tokenizer.json", folder / PRONUNCIATIONS
    shutil.copy(BUNDLE / "tokenizer.json", tokenizer)
    dictionary.write_text(LINES)
    return tokenizer, dictionary


def _read(reader: FledglingTokenizer, text: str) -> str:
    ids = reader.encode(text)
    assert (ids[0], ids[-1]) == (255, 0)
    names = [reader._tokenizer.id_to_token(number) or "?" for number in ids[1:-1]]
    return " ".join(names).replace("[SPACE]", "_")


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("The cat.", "t h e _ K AE1 T ."),
        ("A CAT", "a _ K AE1 T ."),  # the article, not the letter
        ("Plan B, or A?", "p l a n _ B IY1 , _ o r _ EY1 ?"),
        ("cat's", "K AE1 T S ."),
        ("the boss’s", "t h e _ B AO1 S IH0 Z ."),
        ("10 cat-boss", "T EH1 N _ K AE1 T - B AO1 S ."),
        ("zcat", "z c a t ."),
        ("EY1", "e y o n e ."),  # sounds cannot be typed
    ],
)
def test_known_words_are_sounds_and_others_letters(
    reader: FledglingTokenizer, text: str, read: str
) -> None:
    assert _read(reader, text) == read


def test_without_hints_the_letters_are_what_they_were(tmp_path: Path) -> None:
    whole = json.loads((BUNDLE / "tokenizer.json").read_text())
    vocabulary = whole["model"]["vocab"]
    whole["model"]["vocab"] = {k: v for k, v in vocabulary.items() if not SOUND.fullmatch(k)}
    file = tmp_path / "letters.json"
    file.write_text(json.dumps(whole))
    letters, shipped = FledglingTokenizer(file), FledglingTokenizer(BUNDLE / "tokenizer.json")
    assert (letters.has_phonemes, shipped.has_phonemes) == (False, True)
    for text in ("Plan B, or A?", "The boss’s 10 cats; café.", "AH0 EY1"):
        assert letters.encode(text) == shipped.encode(text)


def test_spaces_stay_between_words_so_that_words_are_found(reader: FledglingTokenizer) -> None:
    assert reader.encode("the cat is ten").count(reader.space or -1) == 3


def test_a_sound_that_the_file_lacks_is_refused(tmp_path: Path) -> None:
    tokenizer, dictionary = _files(tmp_path)
    dictionary.write_text("cat QH\n")
    with pytest.raises(TextError, match="no phoneme QH"):
        FledglingTokenizer(tokenizer, dictionary).encode("cat")


def test_a_word_without_sounds_is_refused(tmp_path: Path) -> None:
    (tmp_path / PRONUNCIATIONS).write_text("cat\n")
    with pytest.raises(CorruptFileError, match="'cat'"):
        PhonemeDictionary(tmp_path / PRONUNCIATIONS)


def test_a_model_with_sounds_does_not_load_without_its_dictionary(tmp_path: Path) -> None:
    tokenizer, dictionary = _files(tmp_path)
    files: Files = {"tokenizer": tokenizer}
    assert _tokenizer(find("fledgling"), files).encode("cat") != FledglingTokenizer(
        tokenizer
    ).encode("cat")
    dictionary.unlink()
    with pytest.raises(NotPulledError, match=PRONUNCIATIONS):
        _tokenizer(find("fledgling"), files)


def test_the_genitive_is_said_by_its_last_sound() -> None:
    assert with_s(("D", "AO1", "G"))[-1] == "Z"
    assert with_s(("K", "AE1", "T"))[-1] == "S"
    assert with_s(("CH", "ER1", "CH"))[-2:] == ("IH0", "Z")


def test_every_sound_of_the_file_that_ships_is_in_the_tokenizer_that_ships() -> None:
    known = json.loads((BUNDLE / "tokenizer.json").read_text())["model"]["vocab"]
    lines = (BUNDLE / PRONUNCIATIONS).read_text(encoding="utf-8").splitlines()
    assert len(lines) > 100_000
    assert {sound for line in lines for sound in line.split()[1:]} <= set(known)
    shipped = _tokenizer(find("fledgling"), {"tokenizer": BUNDLE / "tokenizer.json"})
    assert isinstance(shipped, FledglingTokenizer)
    assert _read(shipped, "The thermostat.").endswith("_ TH ER1 M AH0 S T AE2 T .")
