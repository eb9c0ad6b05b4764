"""A small version of `benchmarks/fuzz.py wire`, and proof that it sees what it looks for."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from benchmarks import fuzz
from benchmarks.raw_cases import draw
from tests.server.conftest import Subject
from tests.server.running import Server, serving


def test_cases_are_drawn_from_their_seed_alone_and_are_of_every_protocol() -> None:
    cases = [draw(3, number) for number in range(150)]
    assert cases == [draw(3, number) for number in range(150)]
    assert cases != [draw(4, number) for number in range(150)]
    assert {case.protocol for case in cases} == {"http", "websocket", "wyoming"}
    assert sum(len(case.pieces) > 1 for case in cases) > 25
    assert max(sum(len(data) for data, _ in case.pieces) for case in cases) > 50_000


class FaultyServer:
    """Streams, and answers probes; with the fault that it is told to have."""

    def __init__(self, fault: str) -> None:
        self._fault, self._n_streams = fault, 0

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            if b"/v1/audio/speech" in head and b"identity" in head:  # the listener's
                await self._stream(writer)
            elif b"/health/live" in head and b"identity" in head:
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
            else:
                is_bad = self._fault == "status"
                writer.write(
                    b"HTTP/1.1 %d X\r\ncontent-length: 0\r\n\r\n" % (500 if is_bad else 400)
                )
            await writer.drain()
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            writer.close()

    async def _stream(self, writer: asyncio.StreamWriter) -> None:
        self._n_streams += 1
        is_late = self._n_streams > 2
        writer.write(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n")
        for n in range(4):
            writer.write(b"%d" % (self._n_streams if self._fault == "bytes" and is_late else n))
            await writer.drain()
            await asyncio.sleep(1.6 if self._fault == "stall" and is_late and n == 1 else 0.05)


@pytest.mark.slow
@pytest.mark.parametrize("fault", ["", "status", "stall", "bytes"])
def test_a_planted_fault_is_found(fault: str, tmp_path: Path) -> None:
    async def main() -> dict[str, Any]:
        faulty = await asyncio.start_server(FaultyServer(fault).accept, "127.0.0.1", 0)
        port = faulty.sockets[0].getsockname()[1]
        process = cast(Any, SimpleNamespace(pid=os.getpid()))
        server = Server(f"http://127.0.0.1:{port}", process, tmp_path, tmp_path / "log", {}, port)
        async with faulty:
            return await fuzz.wire(server, 12, seed=1, n_clients=12)

    facts = asyncio.run(main())
    assert facts["ok"] == (not fault), facts
    assert bool(facts["faults"]) == (fault == "status")
    assert (facts["stall_s"] > 1) == (fault == "stall")
    assert facts["same_bytes"] == (fault != "bytes")


@pytest.mark.slow
def test_made_up_bytes_cause_no_server_error_and_no_stall(subject: Subject, tmp_path: Path) -> None:
    with serving(subject.folder, tmp_path, subject.options) as server:
        facts = asyncio.run(fuzz.wire(server, 80, seed=1, n_clients=24))
        restarts = server.meter("worker_restarts_total")
    print(facts)
    assert not facts["faults"]
    assert facts["same_bytes"]
    assert not facts["errors_in_log"]
    assert restarts == 0
    assert facts["growth_mb"] < 100
    assert facts["stall_s"] < 5, "far more than a busy machine explains"
