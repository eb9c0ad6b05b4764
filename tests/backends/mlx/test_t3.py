"""T3 by MLX: slots that requests share, and weights of fewer bits."""
# ruff: noqa: E402

from __future__ import annotations

import shutil
from dataclasses import replace
from typing import Any, Literal

import pytest

from benchmarks import mlx_equality as equality

equality.fast_blas()
pytest.importorskip("mlx.core", reason="MLX is not installed")

from nightingale.backends.base import TokenRequest
from nightingale.backends.mlx import device, t3
from nightingale.backends.torch.engine import TorchTokenEngine
from nightingale.backends.torch.t3.model import T3
from nightingale.core import END_OF_SPEECH, Family, Plan
from nightingale.errors import LayoutError, OptionError
from nightingale.families import FAMILIES
from tests.random_weights import randomize
from tests.tiny import TINY, tiny_t3, tiny_text, tiny_voice

pytestmark = pytest.mark.slow

N_TOKENS = 12


def mlx_t3(
    family: Family, slots: int = 0, weights: Literal["fp32", "bf16", "int8", "int4"] = "fp32"
) -> t3.MlxT3:
    plan = Plan(t3=weights, slots=slots)
    return t3.make_t3(tiny_t3(family), plan, device.choose())


def ask(engine: TorchTokenEngine, seed: int, family: Family, n_prompt: int = 40) -> int:
    options = replace(FAMILIES[family].options, seed=seed, max_tokens=N_TOKENS)
    text = tiny_text(seed, 8 + 5 * seed, family)
    return engine.add(TokenRequest(text, tiny_voice(seed, n_prompt), options))


def said(engine: TorchTokenEngine, numbers: list[int]) -> list[list[int]]:
    """In turns: all of them, or every second."""
    tokens: dict[int, list[int]] = {number: [] for number in numbers}
    live, turn = list(numbers), 0
    while live:
        turn += 1
        for event in engine.step(live if turn % 3 else live[::2]):
            assert event.error is None, event.error
            tokens[event.number].append(event.token)
            if event.is_last:
                live.remove(event.number)
    return list(tokens.values())


@pytest.mark.parametrize("family", ["multilingual", "turbo"])
@pytest.mark.parametrize(("slots", "compiler"), [(0, None), (2, "g++")])
def test_slots_do_not_change_what_is_said(
    family: Family, slots: int, compiler: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three requests in stores of two, each of which grows beyond what attention reaches over.
    Without a compiler, on a CPU, the step is not fused."""
    if compiler is None:
        monkeypatch.setattr(shutil, "which", lambda _: None)
    monkeypatch.setattr(t3, "CAPACITY_BLOCK", 64)
    plain = TorchTokenEngine(tiny_t3(family))
    wanted = [said(plain, [ask(plain, seed, family)])[0] for seed in range(3)]
    engine = TorchTokenEngine(mlx_t3(family, slots))
    alone = [said(engine, [ask(engine, seed, family)])[0] for seed in range(3)]
    together = said(engine, [ask(engine, seed, family) for seed in range(3)])
    assert alone == together == wanted


def test_slots_of_requests_that_ended_are_taken_again() -> None:
    model = mlx_t3("multilingual", 2)
    engine = TorchTokenEngine(model)
    for seed in range(3):
        said(engine, [ask(engine, seed, "multilingual")])
        cancelled = ask(engine, seed, "multilingual")
        engine.step((cancelled,))
        engine.cancel(cancelled)
    assert len(model._stores) == 1


@pytest.mark.skipif(not device.choose().compiles, reason="MLX needs g++ here")
def test_a_step_is_traced_once_for_all_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    traced, forward = [], t3.SlotStep._forward

    def counted(*arguments: Any) -> Any:
        traced.append(arguments)
        return forward(*arguments)

    monkeypatch.setattr(t3.SlotStep, "_forward", counted)
    engine = TorchTokenEngine(mlx_t3("multilingual"))
    for seed in range(3):
        said(engine, [ask(engine, seed, "multilingual")])
    assert len(traced) == 1


def test_speech_beyond_the_last_position_is_refused_alone() -> None:
    small = T3(replace(TINY["english"], max_speech=6)).eval()
    randomize(small, 0)
    small.speech_head.weight.data[END_OF_SPEECH] = 0
    engine = TorchTokenEngine(t3.make_t3(small, Plan(), device.choose()))
    numbers = [ask(engine, seed, "english", n_prompt=5) for seed in range(2)]
    events = [event for _ in range(10) for event in engine.step(numbers[:1])]
    events += engine.step(numbers[1:])
    assert not any(event.error for event in events)
    failed, other = engine.step(numbers)  # the 11th of the first, the second of the other
    assert isinstance(failed.error, OptionError)
    assert other.error is None


def test_layers_that_cannot_be_packed_are_refused() -> None:
    model = T3(replace(TINY["english"], d_model=48)).eval()
    randomize(model, 0)
    with pytest.raises(LayoutError, match="48 and 256 wide cannot be packed"):
        t3.make_t3(model, Plan(t3="int8"), device.choose())
