"""Small versions of what benchmarks/serving.py tries for long."""

from __future__ import annotations

import asyncio
from argparse import Namespace

import pytest

from benchmarks import serving
from tests.server.running import Server

GIVEN = Namespace(clients=16, requests=48, distinct=12, words=0, seed=1, kills=2)


def test_a_bad_network_makes_no_wrong_answer_look_whole(server: Server) -> None:
    told = asyncio.run(serving.identity(server, GIVEN))
    assert told["ok"], told
    assert sum(told["errors"].values()) > 0, "the network was not bad enough to show anything"


def test_a_wrong_answer_would_be_noticed(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    async def alone(url: str, bodies: list[dict[str, object]]) -> list[str]:
        return ["another sum"] * len(bodies)

    monkeypatch.setattr(serving, "alone", alone)
    told = asyncio.run(serving.identity(server, Namespace(**vars(GIVEN) | {"requests": 4})))
    assert (told["ok"], told["wrong"]) == (False, 4)


def test_killed_again_and_again_no_stream_is_lost(server: Server) -> None:
    given = Namespace(**vars(GIVEN) | {"clients": 4, "distinct": 4, "words": 2})
    told = asyncio.run(serving.kills(server, given))
    assert told["ok"], told
    assert told["resumed"] > 0
