"""The clients of benchmarks/fleet.py see what they must see: each fault is planted."""

from __future__ import annotations

import asyncio
import hashlib

import httpx
import pytest

from benchmarks.fleet_clients import Answer, Result, catalogue, fetch, sticky

RIGHT, OTHER = b"the sound of this request", b"the sound of another request"
BODY = catalogue()["Yes.0"]


class Server:
    """Over a real connection: cuts, refuses or changes answers, one each; then it is well."""

    def __init__(self, *faults: str) -> None:
        self._faults = list(faults)

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        fields = dict(line.split(": ", 1) for line in head.splitlines() if ": " in line)
        await reader.readexactly(int(fields["content-length"]))
        fault = self._faults.pop(0) if self._faults else ""
        n_had = int(fields.get("x-resume-from", 0))
        if fault == "busy":
            _answer(writer, 503, b'{"error": {"code": "overloaded"}}')
        elif fault == "ingress":
            _answer(writer, 500, b"Internal Server Error")
        elif fault == "hung up":
            pass
        elif fault == "endless":  # HTTP/1.0: the end of the connection is the end of the body
            writer.write(b"HTTP/1.0 200 OK\r\n\r\n" + RIGHT[:9])
        elif fault == "changed" and n_had:
            _answer(writer, 410, b'{"error": {"code": "model_changed"}}')
        else:
            whole = {"cross-talk": OTHER, "silent loss": RIGHT[:9]}.get(fault, RIGHT)
            rest = (whole.upper() if fault == "different" else whole)[n_had:]
            _answer(writer, 200, rest[:5] if fault == "cut" else rest, is_cut=fault == "cut")
        writer.close()


def _answer(
    writer: asyncio.StreamWriter, status: int, body: bytes, *, is_cut: bool = False
) -> None:
    head = f"HTTP/1.1 {status} x\r\nx-fingerprint: f\r\nx-replica: r\r\nconnection: close\r\n"
    chunk = f"{len(body):x}\r\n".encode() + body + b"\r\n"
    end = b"" if is_cut else b"0\r\n\r\n"
    writer.write(head.encode() + b"transfer-encoding: chunked\r\n\r\n" + chunk + end)


def ask(*faults: str) -> tuple[Result, bytes | None]:
    async def main() -> tuple[Result, bytes | None]:
        result, server = Result(), await asyncio.start_server(Server(*faults), "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        async with server, httpx.AsyncClient() as client:
            data = await fetch(client, f"http://{host}:{port}/", BODY, result)
        sums = {"own": hashlib.sha256(RIGHT), "other": hashlib.sha256(OTHER)}
        digests = {name: it.hexdigest() for name, it in sums.items()}
        if data is not None:
            result.judge("own", data, digests, len(RIGHT))
        return result, data

    return asyncio.run(main())


@pytest.mark.parametrize("fault", ["cross-talk", "silent loss", "different"])
def test_a_wrong_answer_with_status_200_is_counted_by_its_kind(fault: str) -> None:
    result, _ = ask(fault)
    assert dict(result.wrong) == {fault: 1} and not result.n_identical


def test_failures_are_retried_and_counted_by_name() -> None:
    result, data = ask("busy", "ingress", "hung up")
    assert data == RIGHT and result.n_identical == 1 and not result.wrong
    names = {"503 overloaded": 1, "500 unnamed": 1, "connection_lost": 1}
    assert result.failures == names and result.n_unnamed == 1


def test_a_cut_answer_is_continued_from_its_byte() -> None:
    result, data = ask("cut", "busy", "cut")
    assert data == RIGHT and result.n_resumed == 1
    assert result.failures == {"stream_lost": 2, "503 overloaded": 1} and not result.n_unnamed


def test_an_answer_whose_end_nobody_could_see_is_not_taken_for_a_whole_one() -> None:
    result, data = ask("endless")
    assert data == RIGHT and result.failures == {"stream_lost": 1} and not result.wrong


def test_what_cannot_be_continued_is_asked_for_again_as_a_whole() -> None:
    result, data = ask("cut", "changed")
    assert data == RIGHT and result.failures["410 model_changed"] == 1 and not result.n_resumed


def test_hits_and_misses_are_compared_at_equal_load() -> None:
    """One replica is busy, and a new one empty: misses go there."""
    busy = [Answer(0.1 * n, 9.0, 10.0, "old", "anna", False) for n in range(6)]
    found = sticky([*busy, Answer(1.0, 1.2, 2.0, "new", "anna", False)])
    assert found["hit_rate"] == round(5 / 7, 4)
    assert found["open_before_miss"]["p50"] == 0 and found["open_before_hit"]["p50"] == 3
    by_load = found["first_sound_ms_by_load"]
    assert by_load["hit, 4 to 7 requests before it"]["n"] == 2
    assert by_load["miss, 0 to 3 requests before it"]["n"] == 2


def test_requests_of_the_catalogue_differ() -> None:
    bodies = {str(body) for body in catalogue().values()}
    assert len(bodies) == len(catalogue())
