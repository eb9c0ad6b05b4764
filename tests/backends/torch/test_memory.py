"""Requests are counted in bytes against what a device has left."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from nightingale.backends.torch import memory
from nightingale.backends.torch.flow.model import CONFIGS as FLOW_CONFIGS
from nightingale.backends.torch.flow.model import Flow
from nightingale.backends.torch.t3.model import CONFIGS, T3
from nightingale.core import PLANS
from nightingale.families import FAMILIES
from nightingale.nn.meta_init import meta_init
from nightingale.pipeline import Nightingale
from tests.tiny import tiny_t3, tiny_text, tiny_voice


@pytest.mark.slow
def test_a_request_of_multilingual_is_counted() -> None:
    with meta_init():
        t3, flow = T3(CONFIGS["multilingual"]), Flow(FLOW_CONFIGS["meanflow"])
    whole = memory.request_bytes(t3, flow, FAMILIES["multilingual"], PLANS["reference"])
    assert whole == 2 * 2 * 30 * 1024 * 4 * 1300  # keys and values, rows, layers, width, positions
    assert memory.request_bytes(t3, flow, FAMILIES["multilingual"], PLANS["live"]) > whole


@pytest.mark.parametrize("family", ["multilingual", "nano"])
def test_bytes_of_a_cache_are_those_of_a_cache(family: Literal["multilingual", "nano"]) -> None:
    t3, options = tiny_t3(family), FAMILIES[family].options
    prefix = t3.prefix(tiny_voice(), options.exaggeration)
    utterance, _ = t3.begin(tiny_text(family=family), prefix, options)
    utterance.first()
    cache, _ = utterance.slot
    assert cache.n_bytes == t3.cache_bytes(cache.capacity)


@pytest.mark.slow
@pytest.mark.parametrize(("n_bytes", "n_requests"), [(10**6, 1), (10**9, 49), (None, None)])
def test_a_model_says_how_many_requests_its_device_holds(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, n_bytes: int | None, n_requests: int | None
) -> None:
    monkeypatch.setattr(memory, "free_bytes", lambda _device: n_bytes)
    plan = replace(PLANS["live"], prompt_cache=False, flow="fp32", vocoder="fp32")
    model = Nightingale.load("fledgling", home=tmp_path, device="cpu", plan=plan)
    found = model.components.loaded.max_requests
    assert (found is None) is (n_requests is None)
    if n_requests is not None:
        assert found == pytest.approx(n_requests, rel=0.1)
