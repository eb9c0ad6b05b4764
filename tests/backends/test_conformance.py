"""What every backend promises, tested on each that is available here, with the bundled model."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from benchmarks.mlx_equality import fast_blas
from nightingale import Nightingale, backends
from nightingale.backends.base import (
    TokenEngine,
    TokenEvent,
    TokenRequest,
    WaveDecoder,
    WaveState,
    WindowJob,
)
from nightingale.core import (
    END_OF_SPEECH,
    N_SPEECH_CODES,
    PLANS,
    SAMPLES_PER_FRAME,
    SAMPLES_PER_TOKEN,
    FlowPrompt,
    Plan,
)
from nightingale.errors import TextError
from nightingale.loader import Components
from nightingale.windowing import token_windows

SINE = Path(__file__).parent / "sine"
GOLDEN = json.loads((Path(__file__).parent / "golden.json").read_text())
TEXTS = ("Hello there.", "It is late, and nobody minds.", "Yes.")
WHOLE = PLANS["reference"]
WINDOWED = Plan("windowed", prompt_cache=True, window_sizes=(8, 12), vocoder_lookahead=10)


def available() -> Iterator[str]:
    fast_blas()
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(SINE))
        yield from (n for n in backends.names() if backends.find(n).availability().is_available)


def marked(name: str) -> object:
    """MLX on a CPU is for tests alone, and slow."""
    return pytest.param(name, marks=pytest.mark.slow) if name == "mlx" else name


@pytest.fixture(scope="module", params=list(map(marked, available())))
def backend(request: pytest.FixtureRequest) -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(SINE))
        yield request.param


def load(backend: str, home: Path, plan: Plan) -> Components:
    wanted = {"decoder": "meanflow", "plan": plan, "backend": backend, "watermark": False}
    return Nightingale.load("fledgling", home=home, **wanted).components  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def whole(backend: str, tmp_path_factory: pytest.TempPathFactory) -> Components:
    return load(backend, tmp_path_factory.mktemp("home"), WHOLE)


@pytest.fixture(scope="module")
def windowed(backend: str, tmp_path_factory: pytest.TempPathFactory) -> Components:
    return load(backend, tmp_path_factory.mktemp("home"), WINDOWED)


N_TOKENS, N_TO_THE_END = 20, 60


def ask(
    model: Components,
    text: str,
    *,
    seed: int = 0,
    forced: tuple[int, ...] = (),
    max_tokens: int = N_TOKENS,
) -> int:
    options = replace(model.spec.options, seed=seed, max_tokens=max_tokens)
    ids = model.tokenizer.encode(text, "en")
    return model.loaded.token_engine.add(TokenRequest(ids, model.voice.t3, options, forced))


def events(model: Components, number: int) -> list[TokenEvent]:
    found: list[TokenEvent] = []
    while not found or not found[-1].is_last:
        found += model.loaded.token_engine.step((number,))
    return found


def tokens(model: Components, text: str, **more: int) -> list[int]:
    return [event.token for event in events(model, ask(model, text, **more))]  # type: ignore[arg-type]


def test_tokens_of_the_golden_set(backend: str, whole: Components) -> None:
    """In full precision, on every processor and with every backend of real weights."""
    if backend not in GOLDEN["backends"]:
        pytest.skip(f"{backend} has weights of its own")
    for text, wanted in GOLDEN["tokens"].items():
        assert tokens(whole, text, seed=GOLDEN["seed"], max_tokens=N_TO_THE_END) == wanted


def test_every_request_ends_once_and_counts_its_own(whole: Components) -> None:
    number = ask(whole, TEXTS[0], max_tokens=N_TO_THE_END)
    found = events(whole, number)
    assert {event.number for event in found} == {number}
    assert [event.is_last for event in found] == [False] * (len(found) - 1) + [True]
    assert found[-1].token == END_OF_SPEECH
    positions = [event.position for event in found if event.position is not None]
    assert positions == sorted(positions)


@pytest.mark.slow
def test_what_is_cached_of_a_voice_changes_nothing(whole: Components) -> None:
    first, cached = (tokens(whole, TEXTS[0], seed=3) for _ in range(2))
    whole.loaded.token_engine.forget(whole.voice.t3)
    assert first == cached == tokens(whole, TEXTS[0], seed=3)


def test_batch_mates_change_no_token(whole: Components) -> None:
    engine = whole.loaded.token_engine
    alone = [tokens(whole, text, seed=seed) for seed, text in enumerate(TEXTS)]
    numbers = [ask(whole, text, seed=seed) for seed, text in enumerate(TEXTS)]
    said: dict[int, list[int]] = {number: [] for number in numbers}
    live, turn = set(numbers), 0
    while live:
        turn += 1
        # Sometimes all of them, sometimes a few, in either order.
        batch = [
            n for n in sorted(live, reverse=bool(turn % 2)) if turn % 3 or n % 2 or n == max(live)
        ]
        for event in engine.step(batch):
            said[event.number].append(event.token)
            live -= {event.number} if event.is_last else set()
    assert [said[number] for number in numbers] == alone


@pytest.mark.parametrize("t3", ["int8", pytest.param("int4", marks=pytest.mark.slow)])
def test_batch_mates_change_no_token_of_packed_weights(
    backend: str, tmp_path: Path, t3: Literal["int8", "int4"]
) -> None:
    """Which share each pass through the layers, where a backend has them."""
    test_batch_mates_change_no_token(load(backend, tmp_path, Plan("packed", t3=t3)))


@pytest.mark.slow
def test_a_cancelled_request_leaves_the_others_alone(whole: Components) -> None:
    engine = whole.loaded.token_engine
    alone = tokens(whole, TEXTS[1], seed=1)
    kept, dropped = ask(whole, TEXTS[1], seed=1), ask(whole, TEXTS[0])
    said = [
        event.token
        for _ in range(5)
        for event in engine.step((kept, dropped))
        if event.number == kept
    ]
    engine.cancel(dropped)
    engine.cancel(dropped)  # twice is no mistake
    assert said + [event.token for event in events(whole, kept)] == alone


@pytest.mark.slow
def test_a_token_log_is_gone_on_from(whole: Components) -> None:
    alone = tokens(whole, TEXTS[1], seed=2)
    for n_known in (1, len(alone) // 2, len(alone) - 1):
        number = ask(whole, TEXTS[1], seed=2, forced=tuple(alone[:n_known]))
        assert [event.token for event in events(whole, number)] == alone


def test_no_text_is_refused_by_name(whole: Components) -> None:
    with pytest.raises(TextError):
        whole.loaded.token_engine.add(TokenRequest([], whole.voice.t3, whole.spec.options))


def decoded(
    model: Components, codes: list[int], seed: int, *, by_bytes: bool = False, speed: float = 1.0
) -> np.ndarray:
    decoder, prompt = model.loaded.wave_decoder, model.voice.flow
    state: WaveState = decoder.start(prompt, seed, speed)
    parts = []
    for window in filter(None, token_windows(codes, model.plan.window_sizes)):
        if by_bytes:
            state = decoder.restore(state.to_bytes(), prompt, seed, speed)
        (made,) = decoder.decode([WindowJob(window, state)])
        parts.append(made.samples)
        state = made.state
    return np.concatenate(parts)


@pytest.fixture(scope="module")
def codes(whole: Components) -> list[int]:
    return [token for token in tokens(whole, TEXTS[1]) if token < N_SPEECH_CODES]


def test_every_token_has_its_samples(
    whole: Components, windowed: Components, codes: list[int]
) -> None:
    for model in (whole, windowed):
        samples = decoded(model, codes, 5)
        assert samples.dtype == np.float32
        assert len(samples) == len(codes) * SAMPLES_PER_TOKEN
        assert 0.01 < np.abs(samples).max() <= 1


def test_a_state_survives_as_bytes(windowed: Components, codes: list[int]) -> None:
    for speed in (1.0, 0.8):
        through_bytes = decoded(windowed, codes, 5, by_bytes=True, speed=speed)
        assert np.array_equal(through_bytes, decoded(windowed, codes, 5, speed=speed))


@pytest.mark.slow
def test_speed_changes_the_length_of_all_windows_together(
    whole: Components, windowed: Components, codes: list[int]
) -> None:
    for model in (whole, windowed):
        n_plain = len(decoded(model, codes, 5))
        for speed in (0.5, 1.3):
            n_samples = len(decoded(model, codes, 5, speed=speed))
            assert abs(n_samples - n_plain / speed) <= SAMPLES_PER_FRAME


@pytest.mark.slow
def test_batch_mates_change_no_sample(windowed: Components, codes: list[int]) -> None:
    decoder, prompt = windowed.loaded.wave_decoder, windowed.voice.flow
    mates = [(codes, 5), (codes[3:], 6)]
    alone = [decoded(windowed, own, seed) for own, seed in mates]
    states = [decoder.start(prompt, seed) for _, seed in mates]
    grids = [list(filter(None, token_windows(own, windowed.plan.window_sizes))) for own, _ in mates]
    parts: list[list[np.ndarray]] = [[], []]
    for windows in zip(*grids, strict=True):
        made = decoder.decode([WindowJob(w, s) for w, s in zip(windows, states, strict=True)])
        states = [one.state for one in made]
        for own, one in zip(parts, made, strict=True):
            own.append(one.samples)
    for own, wanted in zip(parts, alone, strict=True):
        assert np.array_equal(np.concatenate(own), wanted)


@pytest.mark.slow
def test_a_voice_that_was_forgotten_sounds_as_before(
    windowed: Components, codes: list[int]
) -> None:
    before = decoded(windowed, codes[:12], 1)
    windowed.loaded.wave_decoder.forget(windowed.voice.flow)
    assert np.array_equal(decoded(windowed, codes[:12], 1), before)


class Leaky:
    """An engine whose tokens depend on who else is computed."""

    def __init__(self, engine: TokenEngine) -> None:
        self._engine = engine
        self.add, self.cancel, self.forget = engine.add, engine.cancel, engine.forget

    def step(self, numbers: Collection[int]) -> list[TokenEvent]:
        found = self._engine.step(numbers)
        return [replace(event, token=event.token - (len(found) > 1)) for event in found]


class Forgetful:
    """A decoder that restores the beginning, whatever state it is given."""

    def __init__(self, decoder: WaveDecoder) -> None:
        self._decoder = decoder
        self.start, self.decode, self.forget = decoder.start, decoder.decode, decoder.forget

    def restore(
        self,
        data: bytes,  # noqa: ARG002
        prompt: FlowPrompt,
        seed: int,
        speed: float = 1.0,
    ) -> WaveState:
        return self.start(prompt, seed, speed)


@pytest.mark.slow
def test_planted_faults_are_found(
    whole: Components, windowed: Components, codes: list[int]
) -> None:
    leaky = replace(whole.loaded, token_engine=Leaky(whole.loaded.token_engine))
    for test in (
        test_batch_mates_change_no_token,
        test_a_cancelled_request_leaves_the_others_alone,
    ):
        with pytest.raises(AssertionError):
            test(replace(whole, loaded=leaky))
    forgetful = replace(windowed.loaded, wave_decoder=Forgetful(windowed.loaded.wave_decoder))
    with pytest.raises(AssertionError):
        test_a_state_survives_as_bytes(replace(windowed, loaded=forgetful), codes)
