"""Small tokenizers of each family, and a machine with or without the optional packages."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from nightingale.text import chinese, languages
from nightingale.text.tokenizer import EnglishTokenizer, Gpt2Tokenizer, MultilingualTokenizer
from tests.text import make_gpt2, make_separator, make_tokenizers

Uninstall = Callable[[str], None]


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokenizers")
    make_tokenizers.multilingual(folder / "multilingual.json")
    make_tokenizers.english(folder / "english.json")
    make_tokenizers.cangjie(folder / "cangjie.json")
    make_gpt2.gpt2(folder / "gpt2")
    return folder


@pytest.fixture(scope="session")
def multilingual(files: Path) -> MultilingualTokenizer:
    return MultilingualTokenizer(files / "multilingual.json", files / "cangjie.json")


@pytest.fixture(scope="session")
def english(files: Path) -> EnglishTokenizer:
    return EnglishTokenizer(files / "english.json")


@pytest.fixture(scope="session")
def turbo(files: Path) -> Gpt2Tokenizer:
    return Gpt2Tokenizer(files / "gpt2")


@pytest.fixture(scope="session")
def separator_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_separator.separator(tmp_path_factory.mktemp("pkuseg"))


@pytest.fixture(autouse=True)
def no_separator_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A model in this machine's home folder must not change what a test sees."""
    monkeypatch.setattr("spacy_pkuseg.config.pkuseg_home", str(tmp_path))


@pytest.fixture
def separator(separator_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("spacy_pkuseg.config.pkuseg_home", str(separator_home))


@pytest.fixture
def uninstall(monkeypatch: pytest.MonkeyPatch) -> Uninstall:
    """`uninstall(name)` makes a package impossible to import for the rest of the test."""

    def run(name: str) -> None:
        monkeypatch.setitem(sys.modules, name, None)
        monkeypatch.delitem(sys.modules, f"{name}.config", raising=False)
        languages._kakasi.cache_clear()
        chinese._separator.cache_clear()

    return run
