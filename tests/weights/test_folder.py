"""A folder of released files is recognised by what lies in it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from nightingale.errors import CorruptFileError, NotPulledError
from nightingale.weights.catalog import by_preference, find
from nightingale.weights.folder import find_in
from nightingale.weights.load import read_config, read_tensors


def lay_out(folder: Path, *names: str) -> Path:
    """The files of these models, without content but for the pickles."""
    for name in names:
        for part in find(name).parts:
            file = folder / part.path
            if file.suffix == ".pt":
                torch.save({"weight": torch.ones(3)}, file)
            else:
                file.write_bytes(b"")
    return folder


@pytest.mark.parametrize("name", ["english", "multilingual-v2", "multilingual-pt-br", "nano"])
def test_a_model_is_known_by_its_files(tmp_path: Path, name: str) -> None:
    model, files = find_in(lay_out(tmp_path, name), tmp_path / "home")
    assert model.name == name
    assert files.keys() == {part.role for part in model.parts}


def test_the_better_one_of_two_is_taken(tmp_path: Path) -> None:
    folder = lay_out(tmp_path, "english", "multilingual-v2", "multilingual-v3")
    assert find_in(folder, tmp_path / "home")[0].name == "multilingual-v3"
    assert by_preference()[0].name == "multilingual-v3"


def test_pickles_are_handed_out_converted(tmp_path: Path) -> None:
    _, files = find_in(lay_out(tmp_path, "english"), tmp_path / "home")
    assert files["voice"].suffix == ".safetensors"
    assert read_tensors(files["voice"])["weight"].tolist() == [1, 1, 1]
    assert read_config(files["voice"]) == {}


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    lay_out(tmp_path, "english")
    (tmp_path / "ve.safetensors").unlink()
    with pytest.raises(NotPulledError, match=r"for english it lacks ve\.safetensors"):
        find_in(tmp_path, tmp_path / "home")


def test_a_pickle_with_something_else_in_it_is_refused(tmp_path: Path) -> None:
    lay_out(tmp_path, "english")
    (tmp_path / "conds.pt").write_bytes(b"cos\nsystem\n(S'true'\ntR.")
    with pytest.raises(CorruptFileError, match=r"conds\.pt is refused"):
        find_in(tmp_path, tmp_path / "home")
