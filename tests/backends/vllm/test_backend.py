"""What the backend says of itself: with vLLM or without it."""

from __future__ import annotations

import sys
from importlib import metadata
from pathlib import Path

import pytest

from nightingale.backends.base import ModelFiles
from nightingale.backends.vllm import backend as module
from nightingale.backends.vllm.backend import BACKEND
from nightingale.core import PLANS
from nightingale.errors import OptionError


def test_it_is_not_available_without_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", absent)
    available = BACKEND.availability()
    assert not available.is_available
    assert "pip install 'nightingale-tts[vllm]'" in available.reason


def test_another_minor_version_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "vllm_version", lambda: "0.31.2")
    monkeypatch.setattr("importlib.util.find_spec", lambda _: True)
    assert BACKEND.availability().reason.startswith("it needs vLLM 0.32, this is 0.31.2")


def test_the_question_does_not_import_vllm() -> None:
    before = "vllm" in sys.modules
    BACKEND.availability()
    assert ("vllm" in sys.modules) == before


def test_packed_weights_become_fp32_with_a_reason() -> None:
    resolved = BACKEND.resolve(PLANS["live"], "cpu")
    assert (resolved.plan.t3, resolved.plan.slots) == ("fp32", 0)
    assert resolved.reasons["t3"] == "int8 is read by the torch backend alone; by vLLM"
    assert resolved.plan.window_sizes == PLANS["live"].window_sizes


def test_gpt2_families_are_refused_by_name() -> None:
    files = ModelFiles("turbo", Path(), Path(), "meanflow", PLANS["reference"], "cpu")
    with pytest.raises(OptionError, match="no turbo: it has english, multilingual, fledgling"):
        BACKEND.load(files)
