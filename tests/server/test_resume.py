"""Where a stream goes on when its worker is gone, and when it must not. Real workers."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from nightingale.core import SAMPLES_PER_FRAME
from nightingale.errors import PoisonRequestError, ResumeMismatchError
from nightingale.measure.verify import spectral_distance_db
from nightingale.server import worker_protocol
from nightingale.server.dispatch import Limits
from nightingale.server.utterance import AHEAD, Move, Utterance
from nightingale.server.worker_request import WorkerRequest
from tests.server.conftest import Solo, Subject
from tests.server.test_dispatch import Check, Running, Samples, running

pytestmark = pytest.mark.slow

PARTS = ["The first one is here.", "A second follows it.", "Then the third.", "And a last one."]
TEXT = " ".join(PARTS)
Moved = tuple[Samples, list[Move], dict[str, Any]]


@pytest.fixture
def run(subject: Subject, tmp_path: Path) -> Callable[..., None]:
    def go(check: Check, folder: Path | None = None, **limits: Any) -> None:
        async def main() -> None:
            which = subject if folder is None else Subject(folder, subject.options)
            async with running(which, tmp_path, Limits(**limits)) as it:
                await check(it)

        asyncio.run(main())

    return go


async def listen(it: Running, utterance: Utterance, at: list[int]) -> Samples:
    """All of it; the worker is killed each time that so many parts are whole."""
    heard: list[Samples] = []
    async for event in utterance:
        if isinstance(event, np.ndarray):
            heard.append(event)
        n_parts = n_whole(utterance)
        if at and n_parts >= at[0]:
            at.pop(0)
            it.dispatcher.supervisor.kill()
    assert not at, "it was over too soon"
    return np.concatenate(heard)


def n_whole(utterance: Utterance) -> int:
    """Parts of the text that need not be computed again."""
    kept = utterance._checkpoint
    return 0 if kept is None else int(kept["checkpoint"]["n_parts"])


def spoken(utterance: Utterance) -> dict[str, Any]:
    """All that a listener is told beside the samples."""
    assert utterance.outcome is not None
    outcome = utterance.outcome
    return {
        "words": utterance.words, "unspoken": utterance.unspoken, "unsaid": outcome.unsaid,
        "ending": outcome.ending, "n_samples": outcome.n_samples, "n_tokens": outcome.n_tokens,
    }  # fmt: skip


def check_alike(moved: dict[str, Any], alone: dict[str, Any]) -> None:
    """The same tokens and words. Another rounding may move the last audible sample of a part, from
    which a pause is counted, hence the times behind it: by a frame at most."""
    exact = {"words": None, "n_samples": None}
    assert moved | exact == alone | exact
    assert abs(moved["n_samples"] - alone["n_samples"]) <= SAMPLES_PER_FRAME
    for there, here in zip(moved["words"], alone["words"], strict=True):
        assert there.text == here.text
        assert there.start_s == pytest.approx(here.start_s, abs=0.02)
        assert there.end_s == pytest.approx(here.end_s, abs=0.02)


def test_only_the_part_under_way_is_computed_again(run: Callable[..., None], solo: Solo) -> None:
    """A whole text and one in pieces, killed twice: samples, words and counts are the same."""

    async def check(it: Running) -> None:
        expected = solo(TEXT, seed=2)
        async with it.dispatcher.speak(it.ask(TEXT, seed=2)) as whole:
            assert np.array_equal(await listen(it, whole, []), expected)
        async with it.dispatcher.speak(it.ask(TEXT, seed=2)) as resumed:
            asked = resumed.asking
            begun: list[int] = []

            def noted() -> Any:
                message = asked()
                begun.append(message["resume"]["checkpoint"]["n_parts"])
                return message

            resumed.asking = noted  # type: ignore[method-assign]
            assert np.array_equal(await listen(it, resumed, [1, 3]), expected)
        assert resumed.n_resumed == 2
        assert len(begun) == 2 and begun[0] >= 1 and begun[1] >= 3, begun
        assert spoken(resumed) == spoken(whole)

        pieces = [f"{part} " for part in PARTS]
        options = it.ask(seed=2, speed=0.8).options
        ask = WorkerRequest(options, list(pieces), is_arriving=True)
        async with it.dispatcher.speak(ask) as arriving:
            assert np.array_equal(await listen(it, arriving, [2]), solo(pieces, seed=2, speed=0.8))
        assert arriving.speed == 0.8

    run(check)


def test_a_stream_is_moved_to_another_instruction_set_with_the_same_tokens(
    run: Callable[..., None], solo: Solo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Byte-identical up to the seam, close to it behind, and the listener is informed. A log with
    a wrong token is refused: tests/test_token_log.py. The text is one part, because behind the seam
    another rounding may draw another token, or move the last audible sample, from which the pause
    before the next part is counted: with two parts one of three seeds drew another token, and two
    began the second part 22 and 40 ms later or earlier. One part: the same with all four tried."""
    text = PARTS[0]

    async def killed(it: Running) -> Moved:
        heard: list[Samples] = []
        moves: list[Move] = []
        async with it.dispatcher.speak(it.ask(text, seed=4)) as utterance:
            async for event in utterance:
                if isinstance(event, np.ndarray):
                    heard.append(event)
                elif isinstance(event, Move):
                    moves.append(event)
                if utterance.n_received and not utterance.n_resumed and len(heard) == 2:
                    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "default")
                    it.dispatcher.supervisor.kill()
        assert moves == utterance.moves
        return np.concatenate(heard), moves, spoken(utterance)

    async def check(it: Running) -> None:
        async with it.dispatcher.speak(it.ask(text, seed=4)) as whole:
            alone = await listen(it, whole, [])
        assert np.array_equal(alone, solo(text, seed=4))
        moved, (move,), reported = await killed(it)
        assert "instructions" in move.differing and "canary" in move.differing
        assert it.dispatcher.n_moved == 1
        check_alike(reported, spoken(whole))
        assert np.array_equal(moved[: move.n_samples], alone[: move.n_samples])
        assert not np.array_equal(moved, alone), "or this machine has one kind of arithmetic"
        sounds = (alone, moved, solo(text, seed=5))  # the last one has other tokens
        n = min(map(len, sounds))
        same, *pair = (np.array(sound[:n]) for sound in sounds)
        near, far = (spectral_distance_db(same, sound) for sound in pair)
        assert near < 2 < far, "8 bits may round to another phase: samples differ, spectra do not"

    run(check)


def test_no_stream_goes_on_with_other_weights(
    run: Callable[..., None], subject: Subject, tmp_path: Path
) -> None:
    folder = tmp_path / "model"
    shutil.copytree(subject.folder, folder)
    (folder / "SHA256SUMS").unlink(missing_ok=True)  # else such weights are not even loaded
    t3 = folder / "t3_cfg.safetensors"

    def upgrade() -> None:
        tensors = load_file(t3)
        name = max(tensors, key=lambda name: tensors[name].numel())
        tensors[name] = tensors[name] * 1.5
        with safe_open(t3, "pt") as file:
            save_file(tensors, t3.with_suffix(".new"), file.metadata())
        t3.with_suffix(".new").replace(t3)

    async def check(it: Running) -> None:
        async with it.dispatcher.speak(it.ask(TEXT)) as utterance:
            with pytest.raises(ResumeMismatchError, match="weights"):
                async for _ in utterance:
                    if not utterance.n_resumed:
                        upgrade()
                        it.dispatcher.supervisor.kill()
            assert utterance.outcome is not None
            assert utterance.outcome.ending != "stop"

    run(check, folder)


# Found first by the Python of every worker: a certain text ends the process.
POISON = """
import os, signal, time
from nightingale.text import split as module

def split_lazily(text, *given):
    if "poison" in text:
        os.kill(os.getpid(), signal.SIGSEGV)
        time.sleep(60)  # another thread may get it, and this step would end before the process
    return usual(text, *given)

usual, module.split_lazily = module.split_lazily, split_lazily
"""


def test_a_request_that_kills_workers_fails_and_the_others_go_on(
    run: Callable[..., None], solo: Solo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sitecustomize.py").write_text(POISON)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)

    async def check(it: Running) -> None:
        others = [asyncio.create_task(it.speak(it.ask(TEXT, seed=n))) for n in range(2)]
        await asyncio.sleep(1.0)
        with pytest.raises(PoisonRequestError, match="2 times"):
            await it.speak(it.ask("This is poison."))
        for n, other in enumerate(await asyncio.gather(*others)):
            assert np.array_equal(other, solo(TEXT, seed=n))
        assert it.dispatcher.supervisor.n_deaths == 2

    run(check)


# The same, but by its tokens: in the middle of an utterance, beside those of others.
# When it is beside others for the first time; from then on always there.
POISON_TOKENS = """
import os, signal
from pathlib import Path
from nightingale.backends.torch import engine as module

notes = Path({notes!r})

def step(self, numbers):
    for number in numbers:
        live = self._live[number]
        place = [len(live.utterance._text), live.sampler.n_tokens]
        known = [line.split() for line in notes.read_text().splitlines()] if notes.exists() else []
        is_there = place == list(map(int, known[0][1:])) if known else len(numbers) > 1
        if is_there and live.sampler._max == {max_tokens} and live.sampler.n_tokens:
            with notes.open("a") as file:
                print(len(numbers), *place, file=file)
            os.kill(os.getpid(), signal.SIGSEGV)
    return usual(self, numbers)

usual, module.TorchTokenEngine.step = module.TorchTokenEngine.step, step
"""


def test_a_request_that_kills_the_worker_of_a_batch_fails_and_its_mates_go_on(
    run: Callable[..., None], solo: Solo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of the batch are suspected and computed alone then: the second death names it."""
    notes, max_tokens = tmp_path / "notes", 77
    poison = POISON_TOKENS.format(max_tokens=max_tokens, notes=str(notes))
    (tmp_path / "sitecustomize.py").write_text(poison)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)

    async def check(it: Running) -> None:
        mates = [asyncio.create_task(it.speak(it.ask(TEXT, seed=n))) for n in range(3)]
        with pytest.raises(PoisonRequestError, match=r"failed [23] times"):
            await it.speak(it.ask(TEXT, max_tokens=max_tokens))
        for n, mate in enumerate(await asyncio.gather(*mates)):
            assert np.array_equal(mate, solo(TEXT, seed=n))
        n_together = [int(line.split()[0]) for line in notes.read_text().splitlines()]
        assert n_together[0] > 1
        assert set(n_together[1:]) == {1}

    run(check, max_factor=0.0)  # all at once, however slow this machine is


def test_a_worker_killed_from_outside_is_not_the_requests_fault(
    run: Callable[..., None], solo: Solo
) -> None:
    """Twice in the same stretch of the same request, which is alone."""

    async def check(it: Running) -> None:
        async with it.dispatcher.speak(it.ask(TEXT, seed=1)) as utterance:
            for _ in range(2):
                pid = it.dispatcher.supervisor.pid
                assert pid is not None
                while not (it.dispatcher.link.is_open and it.dispatcher.supervisor.pid == pid):
                    await asyncio.sleep(0.01)
                os.kill(pid, signal.SIGKILL)
                while it.dispatcher.supervisor.pid in (None, pid):
                    await asyncio.sleep(0.01)
            assert np.array_equal(await listen(it, utterance, []), solo(TEXT, seed=1))

    run(check)


def test_a_repeated_id_takes_the_place_of_the_first_request(
    run: Callable[..., None], solo: Solo
) -> None:
    async def check(it: Running) -> None:
        reader, writer = await worker_protocol.connect(await it.dispatcher.supervisor.ready())
        hello = await worker_protocol.receive(reader)
        assert hello is not None and hello[0]["fingerprint"]["protocol"] == worker_protocol.PROTOCOL
        speak = {
            "kind": "speak", "id": 7, "is_arriving": False, "is_open": False, "voice": None,
            "options": it.ask(seed=3).options, "n_skip": 0, "n_allowed": AHEAD,
        }  # fmt: skip
        writer.write(worker_protocol.pack({**speak, "text": [TEXT]}))
        writer.write(worker_protocol.pack({**speak, "text": [PARTS[1]]}))
        heard = []
        while (frame := await worker_protocol.receive(reader)) is not None and frame[0][
            "kind"
        ] != "end":
            heard += [np.frombuffer(frame[1], "<f4")] if frame[0]["kind"] == "audio" else []
        assert np.array_equal(np.concatenate(heard), solo(PARTS[1], seed=3))
        writer.write(worker_protocol.pack({"kind": "ping"}))
        pong = await worker_protocol.receive(reader)
        assert pong is not None and pong[0]["n_requests"] == 0, "the first one is gone"
        writer.close()
        await writer.wait_closed()

    run(check)


def test_the_first_worker_decides_the_model(run: Callable[..., None], tmp_path: Path) -> None:
    """And sums of its files are kept, so that later starts need not read them."""

    async def check(it: Running) -> None:
        supervisor = it.dispatcher.supervisor
        supervisor.config = type(supervisor.config)(tmp_path, threads=1)
        supervisor.pin(str(it.dispatcher.hello["model"]))
        supervisor.kill()
        await it.speak(it.ask("Hi."))
        pid = supervisor.pid
        command = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        assert command[command.index(b"--model") + 1].decode() == it.dispatcher.hello["model"]
        kept = [json.loads(file.read_text()) for file in (tmp_path / "digests").iterdir()]
        weights = it.dispatcher.hello["fingerprint"]["weights"]
        assert set(weights.values()) <= {stamp["sha256"] for stamp in kept}

    run(check)
