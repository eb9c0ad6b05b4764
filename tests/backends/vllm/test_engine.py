"""vLLM's real engine against the torch backend, on the bundled model. `scripts/vllm` runs this."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("vllm", reason="vLLM is not installed: scripts/vllm runs these tests")

from benchmarks import vllm_equality as equality
from nightingale import Nightingale
from nightingale.backends.base import TokenRequest
from nightingale.backends.vllm.engine import VllmTokenEngine
from nightingale.errors import OptionError
from nightingale.loader import Components

pytestmark = pytest.mark.slow
N_TRIALS = 12


@pytest.fixture(scope="module")
def model() -> Components:
    return Nightingale.load("fledgling", decoder="meanflow", watermark=False).components


@pytest.fixture(scope="module")
def trials(model: Components) -> list[equality.Trial]:
    return equality.draw_trials(model, N_TRIALS, np.random.default_rng(5))


@pytest.fixture(scope="module")
def engine(model: Components) -> Iterator[VllmTokenEngine]:
    """With pages as small as on a GPU, so that prompts share some."""
    yield equality.start(model, equality.CONDITIONS["small pages"])


def request_of(model: Components, seed: int) -> TokenRequest:
    text = model.tokenizer.encode("It is late, and nobody minds.", "en")
    options = replace(model.spec.options, seed=seed, max_tokens=30)
    return TokenRequest(text, model.voice.t3, options)


@pytest.mark.parametrize("condition", equality.CONDITIONS)
def test_tokens_and_positions_are_those_of_torch(
    model: Components, trials: list[equality.Trial], condition: str
) -> None:
    engine = equality.start(model, equality.CONDITIONS[condition])
    result = equality.compare(engine, trials, np.random.default_rng(1))
    assert result["tokens"] > 10 * N_TRIALS
    assert not result["wrong"], result
    assert bool(result["preemptions"]) == (condition == "preemption")
    if condition in ("small pages", "no prefix caching"):
        assert bool(result["cached_positions"]) == (condition == "small pages")
    assert len(engine) == len(engine._batch.live) == 0


@pytest.mark.parametrize("fault", equality.FAULTS)
def test_planted_faults_are_caught(
    model: Components, trials: list[equality.Trial], fault: str
) -> None:
    engine = equality.start(model, equality.CONDITIONS["small pages"])
    with equality.FAULTS[fault]():
        result = equality.compare(engine, trials, np.random.default_rng(1))
    assert result["wrong"] > 0


def test_requests_that_nobody_asks_for_are_held(model: Components, engine: VllmTokenEngine) -> None:
    asked, held = (engine.add(request_of(model, seed)) for seed in (1, 2))
    engine.step((asked, held))
    for _ in range(6):
        engine.step((asked,))
    sequences = engine._batch.live
    assert sequences[asked].sampler.n_tokens == 7
    assert sequences[held].sampler.n_tokens == 1
    for number in (asked, held):
        engine.cancel(number)


def test_cancel_from_another_thread_frees_the_pages(
    model: Components, engine: VllmTokenEngine
) -> None:
    numbers = [engine.add(request_of(model, seed)) for seed in range(3)]
    engine.step(numbers)
    for number in numbers[1:]:
        thread = threading.Thread(target=engine.cancel, args=(number,))
        thread.start()
        thread.join()
    engine.step(numbers[:1])
    assert list(engine._batch.live) == numbers[:1]
    assert engine._engine.get_num_unfinished_requests() == 1
    engine.cancel(numbers[0])


def test_forget_drops_pages_when_nobody_uses_them(
    model: Components, engine: VllmTokenEngine
) -> None:
    number = engine.add(request_of(model, 1))
    engine.step((number,))
    pool = engine._scheduler.kv_cache_manager.block_pool
    assert len(pool.cached_block_hash_to_block) > 0
    engine.forget(model.voice.t3)
    assert len(pool.cached_block_hash_to_block) > 0
    while not engine.step((number,))[0].is_last:
        pass
    assert len(pool.cached_block_hash_to_block) == 0


def test_a_failing_request_leaves_its_mate_alone(
    model: Components, engine: VllmTokenEngine
) -> None:
    def fail(*_: object) -> None:
        raise ZeroDivisionError

    wanted = equality.say_alone(engine, request_of(model, 3))
    failing, mate = engine.add(request_of(model, 4)), engine.add(request_of(model, 3))
    said = [event for event in engine.step((failing, mate)) if event.number == mate]
    engine._batch.live[failing].sampler._sample = fail  # type: ignore[assignment]
    event, other = engine.step((failing, mate))
    assert isinstance(event.error, ZeroDivisionError) and event.is_last
    said.append(other)
    while not said[-1].is_last:
        said += engine.step((mate,))
    assert [(it.token, it.position, it.is_last, it.is_said) for it in said] == wanted


def test_an_engine_that_goes_leaves_the_others_alone(
    model: Components, engine: VllmTokenEngine
) -> None:
    """vLLM's process groups belong to the process."""
    other = equality.start(model, equality.CONDITIONS["small pages"])
    wanted = equality.say_alone(other, request_of(model, 5))
    del other
    gc.collect()
    assert equality.say_alone(engine, request_of(model, 5)) == wanted


def test_a_device_that_vllm_was_not_built_for_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from vllm.platforms import current_platform

    monkeypatch.setattr(current_platform, "device_type", "xpu")
    with pytest.raises(OptionError, match="computes on the first xpu device, not on cpu"):
        Nightingale.load("fledgling", home=tmp_path, backend="vllm")
