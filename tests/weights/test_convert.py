"""Pickles: their tensors come through, their code does not."""

from __future__ import annotations

import json
import pickle
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open

from nightingale.errors import CorruptFileError
from nightingale.weights.convert import convert
from nightingale.weights.load import read_tensors
from nightingale.weights.manifest import sha256_of


def converted(tree: Any, folder: Path) -> Path:
    source = folder / "conds.pt"
    torch.save(tree, source)
    return convert(source, sha256_of(source), folder)


def test_a_voice_is_flattened_with_dots_and_loses_what_is_none(tmp_path: Path) -> None:
    voice = {
        "t3": {"speaker_emb": torch.ones(1, 256), "clap_emb": None, "emotion_adv": 0.5},
        "gen": {"prompt_token": torch.arange(3), "prompt_token_len": 3},
    }
    tensors = read_tensors(converted(voice, tmp_path))
    assert {name: (t.tolist(), t.dtype) for name, t in tensors.items()} == {
        "t3.speaker_emb": ([[1.0] * 256], torch.float32),
        "t3.emotion_adv": (0.5, torch.float32),
        "gen.prompt_token": ([0, 1, 2], torch.int64),
        "gen.prompt_token_len": (3, torch.int64),
    }


def test_shared_and_strided_tensors_survive(tmp_path: Path) -> None:
    base = torch.arange(6.0).reshape(2, 3)
    tensors = read_tensors(converted({"a": base, "b": base, "turned": base.T}, tmp_path))
    assert torch.equal(tensors["b"], base)
    assert torch.equal(tensors["turned"], base.T)


def test_a_wrapped_state_is_unwrapped(tmp_path: Path) -> None:
    wrapped = {"model": [{"weight": torch.ones(2)}], "step": 7}
    assert list(read_tensors(converted(wrapped, tmp_path))) == ["weight"]


def test_a_conversion_says_where_it_comes_from(tmp_path: Path) -> None:
    target = converted({"a": torch.ones(1)}, tmp_path)
    sha256 = sha256_of(tmp_path / "conds.pt")
    assert target == tmp_path / "converted" / sha256 / "conds.safetensors"
    with safe_open(target, framework="pt") as file:
        facts = json.loads(file.metadata()["nightingale"])
    assert facts == {"source": "conds.pt", "sha256": sha256, "converter": "1"}


def test_a_conversion_is_made_once_and_again_when_it_was_damaged(tmp_path: Path) -> None:
    target = converted({"a": torch.ones(100)}, tmp_path)
    source, content, made = tmp_path / "conds.pt", target.read_bytes(), target.stat().st_mtime_ns
    sha256 = sha256_of(source)
    assert convert(source, sha256, tmp_path).stat().st_mtime_ns == made
    for damaged in (content[:-1], content[:-1] + b"\1"):
        target.write_bytes(damaged)
        assert convert(source, sha256, tmp_path).read_bytes() == content
    names = {path.name for path in target.parent.iterdir()}
    assert names == {"conds.safetensors", "conds.safetensors.sha256"}


class Bomb:
    """Unpickled carelessly, it creates a file."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Any, ...]:
        return Path.touch, (self.file,)


@pytest.mark.parametrize(
    "save", [torch.save, lambda tree, file: file.write_bytes(pickle.dumps(tree))]
)
def test_a_pickle_with_code_is_refused_by_name_and_does_not_run(save: Any, tmp_path: Path) -> None:
    source, crater = tmp_path / "ve.pt", tmp_path / "crater"
    save({"weight": torch.ones(1), "bomb": Bomb(crater)}, source)
    with pytest.raises(CorruptFileError, match=r"ve\.pt.*code"):
        convert(source, sha256_of(source), tmp_path)
    assert not crater.exists()
    with suppress(RuntimeError):  # without torch's header it goes off all the same
        torch.load(source, weights_only=False)
    assert crater.exists(), "the bomb is a dud, so that this test proves nothing"


@pytest.mark.parametrize("content", [b"", b"not a pickle", b"PK\3\4 and no more"])
def test_a_damaged_pickle_is_refused_by_name(content: bytes, tmp_path: Path) -> None:
    source = tmp_path / "s3gen.pt"
    source.write_bytes(content)
    with pytest.raises(CorruptFileError, match=r"s3gen\.pt"):
        convert(source, sha256_of(source), tmp_path)


@pytest.mark.parametrize(
    ("tree", "complaint"),
    [
        ({"a": {"b": "text"}}, "a str at 'a.b'"),
        ({"a": [torch.ones(1)]}, "a list at 'a'"),
        (torch.ones(1), "a Tensor at 'its top'"),
        ({"a.b": torch.ones(1), "a": {"b": torch.ones(1)}}, "two tensors called 'a.b'"),
    ],
)
def test_what_is_no_tensor_is_refused_by_name(tree: Any, complaint: str, tmp_path: Path) -> None:
    with pytest.raises(CorruptFileError, match=rf"conds\.pt holds {complaint}"):
        converted(tree, tmp_path)
