"""A stream that goes on in the middle of a part, by its token log."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from nightingale.errors import ResumeMismatchError
from nightingale.pipeline import Nightingale
from nightingale.speech import Checkpoint, SpeechStream
from nightingale.token_log import TokenLog
from tests.tiny_release import make_release

pytestmark = pytest.mark.slow

FIRST = "The first one is here."
TEXT = f"{FIRST}\n\nA second follows it."


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Nightingale:
    folder = make_release(tmp_path_factory.mktemp("release"), "english")
    return Nightingale.load(folder, home=tmp_path_factory.mktemp("home"), plan="live", threads=1)


def speak(model: Nightingale, behind: Checkpoint | None = None, seed: int = 3) -> SpeechStream:
    return model.stream(TEXT, resume=behind, max_tokens=20, seed=seed)


def broken_off(model: Nightingale, n_chunks: int) -> tuple[int, Checkpoint]:
    """So many samples were heard, and this is what the listener kept, through JSON."""
    speech = speak(model)
    n_heard = sum(len(next(speech).samples) for _ in range(n_chunks))
    log = TokenLog.from_json(json.loads(json.dumps(speech.token_log.to_json())))
    behind = Checkpoint.start() if speech.checkpoint is None else speech.checkpoint
    speech.cancel()
    return n_heard, replace(behind, log=log)


def test_a_token_log_goes_on_in_the_middle_of_a_part_with_the_same_bytes(
    model: Nightingale,
) -> None:
    whole = speak(model)
    chunks = [chunk.samples for chunk in whole]
    expected, n_parts = np.concatenate(chunks), set()
    for n_chunks in (1, len(chunks) - 1):
        n_heard, behind = broken_off(model, n_chunks)
        n_parts.add(behind.n_parts)
        resumed = speak(model, behind)
        again = np.concatenate([chunk.samples for chunk in resumed])
        assert np.array_equal(again, expected[behind.joined.n_samples :])
        assert resumed.n_tokens == whole.n_tokens
        assert n_heard > behind.joined.n_samples
    assert n_parts == {0, 1}, "in the first part, and in the second"


def test_a_token_log_on_its_way_does_not_grow_with_its_stream(model: Nightingale) -> None:
    """The worker packs it in another thread while the next tokens are noted."""
    speech = speak(model)
    next(speech)
    on_its_way = speech.token_log.to_json()
    packed = json.dumps(on_its_way)
    for _ in range(5):
        speech.step()
    assert len(speech.token_log.attempts[0].tokens) > len(on_its_way["attempts"][0][0])
    assert json.dumps(on_its_way) == packed


def test_forced_tokens_decide_and_not_what_would_be_drawn(model: Nightingale) -> None:
    """The log of seed 3 with the text of seed 4, its digest forged: the sound is another one."""
    _, behind = broken_off(model, 1)
    assert behind.log is not None
    known = behind.log.attempts[0].tokens
    forged = replace(behind.log, digest=behind.log._digest(f"4 {FIRST}"))
    other = speak(model, replace(behind, log=forged), seed=4)
    next(other)
    assert list(other.token_log.attempts[0].tokens[: len(known)]) == known
    alone = speak(model, seed=4)
    next(alone)
    assert alone.token_log.attempts[0].tokens[: len(known)] != known


def wrong_token(log: TokenLog) -> None:
    log.attempts[0].tokens[2] ^= 1


def wrong_part(log: TokenLog) -> None:
    log.n_parts += 1


def wrong_start(log: TokenLog) -> None:
    log.attempts[0].first_audible = 7


@pytest.mark.parametrize("plant", [wrong_token, wrong_part, wrong_start])
def test_a_token_log_that_was_changed_is_refused(
    model: Nightingale, plant: Callable[[TokenLog], None]
) -> None:
    _, behind = broken_off(model, 2)
    assert behind.log is not None
    plant(behind.log)
    with pytest.raises(ResumeMismatchError, match="token log"):
        next(speak(model, behind))


def test_the_token_log_of_another_request_is_refused(model: Nightingale) -> None:
    _, behind = broken_off(model, 2)
    with pytest.raises(ResumeMismatchError, match="token log"):
        next(speak(model, behind, seed=4))


def test_a_backend_that_ignores_forced_tokens_is_caught(
    model: Nightingale, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, behind = broken_off(model, 2)
    engine = model.components.loaded.token_engine
    add = engine.add
    monkeypatch.setattr(
        engine, "add", lambda it: add(replace(it, forced=tuple(7 for _ in it.forced)))
    )
    with pytest.raises(ResumeMismatchError, match="does not repeat"):
        next(speak(model, behind))
