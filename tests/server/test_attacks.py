"""A few of the attacks of benchmarks/attacks.py, shorter, and that what they do would be seen."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any

import pytest

from benchmarks import attacks
from tests.server.running import Server

pytestmark = pytest.mark.slow
SECONDS = 1.5
FEW = ("closing_quotes", "long_url", "slow_heads")


@pytest.fixture(autouse=True)
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two listeners of two sentences: tests beside this one take the time that four would need."""
    monkeypatch.setattr(attacks, "N_LISTENERS", 2)
    monkeypatch.setattr(attacks, "TEXT", "This is number one. Here comes two.")
    monkeypatch.setattr(attacks, "MAX_ANSWER_S", 30.0)


def test_listeners_hear_every_byte_beside_an_attack(server: Server) -> None:
    """How long gaps are is for the benchmark to measure, on a machine that does nothing else."""
    rows = list(attacks.attempt(server, list(FEW), SECONDS, None))
    assert [row["attack"] for row in rows] == list(FEW)
    for row in rows:
        found = {name: row[name] for name in ("wrong", "failures", "worker")}
        assert found == {"wrong": 0, "failures": [], "worker": "same"}, row
        assert row["growth_mb"] < attacks.MAX_GROWTH_MB, row


def test_an_attack_that_kills_the_worker_is_seen(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def kill(server: Server, _name: str, seconds: float) -> dict[str, int]:
        os.kill(server.worker(), signal.SIGKILL)
        await asyncio.sleep(seconds)
        return {}

    monkeypatch.setattr(attacks, "run_attacker", kill)
    (row,) = attacks.attempt(server, ["planted"], SECONDS, None)
    assert (row["ok"], row["worker"]) == (False, "restarted")


def test_an_attack_that_stalls_the_server_is_a_gap(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def stall(server: Server, _name: str, _seconds: float) -> dict[str, int]:
        server.process.send_signal(signal.SIGSTOP)
        await asyncio.sleep(7)
        server.process.send_signal(signal.SIGCONT)
        return {}

    monkeypatch.setattr(attacks, "run_attacker", stall)
    (row,) = attacks.attempt(server, ["planted"], SECONDS, None)
    assert (row["ok"], row["wrong"]) == (False, 0)
    assert row["longest_gap_s"] > 1, row


def test_wrong_bytes_and_server_errors_are_seen(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fault(_server: Server, _name: str, _seconds: float) -> dict[str, int]:
        return {"500": 1}

    async def other(*_: Any) -> list[str]:
        return ["other bytes", "than these"]

    monkeypatch.setattr(attacks, "run_attacker", fault)
    (row,) = attacks.attempt(server, ["planted"], SECONDS, None)
    assert (row["ok"], row["wrong"]) == (False, 0)
    monkeypatch.setattr(attacks, "alone", other)
    (row,) = attacks.attempt(server, ["planted"], SECONDS, None)
    assert (row["ok"], row["wrong"]) == (False, 2)
