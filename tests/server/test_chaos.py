"""Small versions of what benchmarks/serving.py tries for long."""

from __future__ import annotations

import asyncio
from argparse import Namespace
from pathlib import Path

import pytest

from benchmarks import serving
from benchmarks.long_kills import long_kills
from tests.server import running
from tests.server.conftest import Subject
from tests.server.running import Server

pytestmark = pytest.mark.slow

GIVEN = Namespace(clients=16, requests=48, distinct=12, words=0, seed=1, kills=2)
BRIEF = Namespace(clients=2, distinct=2, words=0, seed=1, minutes=0.2)  # handles tell so soon


def test_a_bad_network_makes_no_wrong_answer_look_whole(server: Server) -> None:
    facts = asyncio.run(serving.identity(server, GIVEN))
    assert facts["ok"], facts
    assert sum(facts["errors"].values()) > 0, "the network was not bad enough to show anything"


def test_a_wrong_answer_would_be_noticed(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    async def alone(url: str, bodies: list[dict[str, object]]) -> list[str]:
        return ["another sum"] * len(bodies)

    monkeypatch.setattr(serving, "alone", alone)
    facts = asyncio.run(serving.identity(server, Namespace(**vars(GIVEN) | {"requests": 4})))
    assert (facts["ok"], facts["wrong"]) == (False, 4)


def test_killed_again_and_again_no_stream_is_lost(server: Server) -> None:
    given = Namespace(**vars(GIVEN) | {"clients": 4, "distinct": 4, "words": 2})
    facts = asyncio.run(serving.kills(server, given))
    assert facts["ok"], facts
    assert facts["resumed"] > 0


LONG = Namespace(kills=3, longest=6.0, seed=1)


def test_killed_deep_inside_a_long_text_it_is_the_same(server: Server) -> None:
    facts = asyncio.run(long_kills(server, LONG))
    assert facts["ok"], facts
    assert facts["resumed"] >= 3


def test_a_wrong_resume_would_be_noticed(subject: Subject, tmp_path: Path) -> None:
    path = serving.with_planted("wrong_resume")
    with running.serving(subject.folder, tmp_path, subject.options, PYTHONPATH=path) as server:
        facts = asyncio.run(long_kills(server, Namespace(**vars(LONG) | {"kills": 1})))
    assert (facts["ok"], facts["wrong"], facts["lost"]) == (False, 1, []), facts


def test_a_soak_holds_no_more_handles(server: Server) -> None:
    facts = asyncio.run(serving.soak(server, BRIEF))
    assert facts["done"] > 0 and not facts["errors"]
    assert "worker_handles" not in facts["grown"], facts


def test_a_leak_is_seen(subject: Subject, tmp_path: Path) -> None:
    leak = serving.with_planted("leak")
    with running.serving(subject.folder, tmp_path, subject.options, PYTHONPATH=leak) as server:
        facts = asyncio.run(serving.soak(server, BRIEF))
    assert {"front_handles", "worker_handles"} <= set(facts["grown"]), facts
