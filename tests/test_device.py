"""The choice of a device, and that it can explain itself."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from nightingale import loader
from nightingale.backends.torch import backend
from nightingale.core import PLANS
from nightingale.errors import OptionError
from nightingale.measure import random_model
from nightingale.nn.device import Placement, choose


def test_a_device_that_was_asked_for_is_taken() -> None:
    placement = choose("cpu")
    assert placement.device == torch.device("cpu")
    assert placement.reason == "cpu was asked for"


def test_auto_takes_what_is_here_and_says_why() -> None:
    placement = choose()
    assert placement.device.type in placement.reason
    assert placement.dtype is torch.float32


def test_an_absent_device_is_refused_with_those_that_are_here() -> None:
    absent = "mps" if not torch.backends.mps.is_available() else "cuda"
    with pytest.raises(
        OptionError, match=rf"'{absent}' is not available here; this machine has: .*cpu"
    ):
        choose(absent)


def test_an_unknown_device_is_refused_with_those_that_exist() -> None:
    with pytest.raises(OptionError, match="no device 'abacus'; choose one of auto, cuda, mps, cpu"):
        choose("abacus")


def test_packed_weights_are_refused_where_compiled_code_cannot_read_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    elsewhere = Placement(torch.device("meta"), torch.float32, "a device without the CPU's memory")
    for module in (backend, random_model):
        monkeypatch.setattr(module, "choose", lambda _device="auto": elsewhere)
    wanted = loader.LoadOptions(plan=PLANS["balanced"])
    with pytest.raises(OptionError, match="which meta cannot read"):
        random_model.random_components("nano", wanted)
    with pytest.raises(OptionError, match="which meta cannot read"):
        loader.load_components("fledgling", tmp_path, wanted)
