"""Text ids, ours and upstream's, on the same files. Nothing of text differs between 0.1.7 and HEAD.

Multilingual is compared in upstream's own form of text, whatever the checkpoint: for V3 and the
packs Nightingale departs from it (`FamilySpec.text_form`), because they were trained otherwise.

The exception: upstream speaks a sentence of its own for an empty text, and a full stop for blanks;
we refuse both (tests/text).
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from nightingale.text.languages import LANGUAGES
from nightingale.text.tokenizer import EnglishTokenizer, Gpt2Tokenizer, MultilingualTokenizer
from tests.parity import texts
from tests.parity.conftest import RunUpstream
from tests.text import make_gpt2, make_separator, make_tokenizers

pytestmark = pytest.mark.parity


@dataclass(frozen=True)
class Side:
    """One run of upstream, and the files both sides read."""

    job: dict[str, Any]
    answer: dict[str, Any]


@pytest.fixture(scope="module")
def upstream(run_upstream: RunUpstream, tmp_path_factory: pytest.TempPathFactory) -> Side:
    folder = tmp_path_factory.mktemp("text")
    home = make_separator.separator(folder)
    # upstream asks for the model by name; this file is what tells the package that it has it
    (home / "spacy_ontonotes.zip").touch()
    gpt2 = [
        make_gpt2.gpt2(folder / "described", model_max_length=10**9),
        make_gpt2.gpt2(folder / "older", with_decoder=False, model_max_length=10**9),
    ]
    job = {
        "pkuseg_home": str(home),
        "multilingual": str(make_tokenizers.multilingual(folder / "multilingual.json")),
        "english": str(make_tokenizers.english(folder / "english.json")),
        "cangjie": str(make_tokenizers.cangjie(folder / "cangjie.json")),
        "gpt2": [str(path) for path in gpt2],
        "texts": texts.by_language(),
        "english_texts": texts.mixed(),
    }
    return Side(job, run_upstream("upstream_text.py", job))


def test_there_are_enough_texts() -> None:
    pairs = set(texts.by_language())
    counts = Counter(language for language, _ in pairs)
    assert len(pairs) >= 500
    assert set(counts) == {None, *LANGUAGES}
    assert min(counts.values()) >= 20
    assert len(set(texts.mixed())) >= 100


def test_the_languages_are_upstreams(upstream: Side) -> None:
    assert list(LANGUAGES) == upstream.answer["languages"]


@pytest.mark.filterwarnings("ignore::nightingale.text.languages.LanguageWarning")
@pytest.mark.parametrize("language", [None, *LANGUAGES])
def test_multilingual_ids_are_upstreams(
    language: str | None, upstream: Side, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spacy_pkuseg.config.pkuseg_home", upstream.job["pkuseg_home"])
    job = upstream.job
    tokenizer = MultilingualTokenizer(Path(job["multilingual"]), Path(job["cangjie"]), "upstream")
    for (code, text), theirs in zip(job["texts"], upstream.answer["multilingual"], strict=True):
        if code == language:
            assert (text, tokenizer.encode(text, code)) == (text, [255, *theirs, 0])


def test_english_ids_are_upstreams(upstream: Side) -> None:
    tokenizer = EnglishTokenizer(Path(upstream.job["english"]))
    for text, theirs in zip(upstream.job["english_texts"], upstream.answer["english"], strict=True):
        assert (text, tokenizer.encode(text)) == (text, [255, *theirs, 0])


@pytest.mark.parametrize("layout", [0, 1], ids=["described", "older"])
def test_turbo_and_nano_ids_are_upstreams(layout: int, upstream: Side) -> None:
    tokenizer = Gpt2Tokenizer(Path(upstream.job["gpt2"][layout]))
    theirs = upstream.answer["turbo"][layout]
    for text, ids in zip(upstream.job["english_texts"], theirs, strict=True):
        assert (text, tokenizer.encode(text)) == (text, ids)
