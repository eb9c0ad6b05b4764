"""What a worker leaves behind when it dies: the steps of its batch."""

from __future__ import annotations

from pathlib import Path

from nightingale.scheduler import MAX_BATCH
from nightingale.server.step_record import Step, StepRecord, read
from nightingale.server.utterance import Blame, Utterance
from nightingale.server.worker_request import WorkerRequest


def test_steps_are_there_until_they_end(tmp_path: Path) -> None:
    address = str(tmp_path / "worker.sock")
    assert read(address) == []
    record, steps = StepRecord(address), [Step(1, n, 0, n) for n in range(1, MAX_BATCH + 1)]
    for step in steps:
        record.begin(step)
    assert read(address) == steps
    record.end(steps[3])
    record.end(steps[3])
    assert read(address) == steps[:3] + steps[4:]
    for step in steps:
        record.end(step)
    assert read(address) == []


def test_one_of_a_batch_is_asked_again_alone_and_fails_at_its_second_death() -> None:
    utterance = Utterance(1, WorkerRequest({}, ["Hi."]), lambda _message: None)
    assert not utterance.asking()["is_suspect"]
    assert utterance.on_worker_lost(None)
    assert not utterance.asking()["is_suspect"], "it was not in that batch"
    blame = Blame(Step(1, 1, 0, 5), 2)
    assert utterance.on_worker_lost(blame)
    assert utterance.asking()["is_suspect"]
    assert not utterance.on_worker_lost(blame), "by itself: it is poison"
