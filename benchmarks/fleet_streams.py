"""What listeners of a fleet are informed of: streams that were moved, streams that were cut.

    scripts/fleet python -m benchmarks.fleet_streams --requests 60 --rounds 5

Moved: workers inside two replicas are killed, and every other worker has another instruction set
(`mixed_workers`). Each answer (SSE) must have the bytes of a server of one kind, or say that it was
moved. Cut: replicas are killed while a chunked body, SSE, a WebSocket and HTTP/1.0 listen; whoever
ends as if all was said is a silent loss. Exits with 1 at a wrong answer or a silent loss; HTTP/1.0
has no end mark, and is reported apart.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import os
import random
import signal
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import httpx

from benchmarks import fleet as proof
from benchmarks.fleet import PORT, REPLICA, ROOT, WORKER, descendants
from examples.resume import FailedError, Speech
from nightingale.fleet import app as fleet

TEXT = "The first one is here. A second follows it. Then the third. And a last one."
N_SEEDS, N_CLIENTS, EVERY_S = 4, 4, 6.0
URL = f"http://127.0.0.1:{PORT}/v1/audio/speech"


def body(seed: int, text: str = TEXT) -> dict[str, Any]:
    return {
        "input": text, "voice": f"voice-{seed}", "seed": seed, "response_format": "pcm",
        "stream_format": "sse", "prebuffer": False,
    }  # fmt: skip


async def listen(client: httpx.AsyncClient, url: str, seed: int) -> tuple[bytes, list[Any], str]:
    """Sound, moves, and the headers' word of a move; raises if there is no end mark."""
    audio, moves, is_done = b"", [], False
    async with client.stream("POST", url, json=body(seed)) as reply:
        reply.raise_for_status()
        async for line in reply.aiter_lines():
            if line.startswith("data: "):
                event = json.loads(line[6:])
                audio += base64.b64decode(event.get("audio", ""))
                is_done |= event["type"] == "speech.audio.done"
                if event["type"] == "speech.audio.moved":
                    moves.append(event)
        if not is_done:
            raise httpx.RemoteProtocolError("no end mark")
        return audio, moves, reply.headers.get("x-moved", "")


async def expected(home: Path) -> dict[str, list[bytes]]:
    """Of a server of each kind."""
    found: dict[str, list[bytes]] = {}
    for kind, setting in (("usual", None), ("default", "default")):
        if setting:
            os.environ["ATEN_CPU_CAPABILITY"] = setting
        with proof.one_box(home, PORT + 1) as url:
            async with httpx.AsyncClient(timeout=120) as client:
                found[kind] = [(await listen(client, url, n))[0] for n in range(N_SEEDS)]
        os.environ.pop("ATEN_CPU_CAPABILITY", None)
    return found


async def moves(given: argparse.Namespace, known: dict[str, list[bytes]]) -> dict[str, Any]:
    seen, failures, n_kills = Counter[str](), Counter[str](), 0
    rng, wanted = random.Random(0), iter(range(given.requests))

    async def client() -> None:
        async with httpx.AsyncClient(timeout=120) as session:
            for number in wanted:
                await ask(session, number % N_SEEDS)

    async def ask(session: httpx.AsyncClient, seed: int) -> None:
        while True:
            try:
                audio, said, header = await listen(session, URL, seed)
            except httpx.HTTPError as error:
                failures[type(error).__name__] += 1
                await asyncio.sleep(0.5)
                continue
            seen[judge(audio, said, header, [known[kind][seed] for kind in known])] += 1
            return

    async def kill() -> None:
        nonlocal n_kills
        while True:
            await asyncio.sleep(EVERY_S)
            targets = [pid for pid, (_, it) in descendants(os.getpid()).items() if WORKER in it]
            if targets:
                os.kill(rng.choice(targets), signal.SIGKILL)
                n_kills += 1

    killing = asyncio.create_task(kill())
    await asyncio.gather(*(client() for _ in range(N_CLIENTS)))
    killing.cancel()
    return {"requests": given.requests, "worker_kills": n_kills, **seen, "failures": dict(failures)}


def judge(audio: bytes, said: list[Any], header: str, known: list[bytes]) -> str:
    """Of one answer: identical to one kind of server, moved and informed, or wrong."""
    if header:
        return "moved before the first sound, by X-Moved"
    if said:
        n_same = 2 * round(24_000 * said[0]["start"])
        is_right = any(audio[:n_same] == whole[:n_same] for whole in known)
        return "moved, by speech.audio.moved" if is_right else "wrong before it was moved"
    if audio in known:
        return "identical"
    is_short = any(len(audio) < len(whole) for whole in known)
    return "wrong: short" if is_short else "wrong: different"


async def cut(how: str, first: asyncio.Event) -> str:
    """How one listener of a long text sees the end of its replica."""
    long = body(1, " ".join([TEXT] * 20))
    if how == "websocket":
        return await _cut_websocket(long, first)
    if how == "http/1.0":
        return await _cut_http10(long, first)
    async with httpx.AsyncClient(timeout=120) as client:
        if how == "chunked":
            return await _cut_chunked(client, long, first)
        try:
            async with client.stream("POST", URL, json=long) as reply:
                async for line in reply.aiter_lines():
                    first.set()
                    if "speech.audio.done" in line:
                        return "done"
        except httpx.RemoteProtocolError:
            return "no end mark, RemoteProtocolError"
        return "no end mark, clean end"


async def _cut_chunked(
    client: httpx.AsyncClient, long: dict[str, Any], first: asyncio.Event
) -> str:
    try:
        async for _ in Speech({**long, "stream_format": "audio"}).attempt(client, URL):
            first.set()
    except FailedError as failure:
        return str(failure)
    return "SILENT"


async def _cut_websocket(long: dict[str, Any], first: asyncio.Event) -> str:
    from websockets.asyncio.client import connect  # noqa: PLC0415
    from websockets.exceptions import ConnectionClosed  # noqa: PLC0415

    try:
        async with connect(URL.replace("http", "ws", 1) + "/stream", max_size=None) as socket:
            await socket.send(json.dumps({"type": "start", "seed": 1, "prebuffer": False}))
            await socket.send(json.dumps({"type": "text", "text": long["input"]}))
            await socket.send(json.dumps({"type": "end"}))
            async for message in socket:
                if isinstance(message, bytes):
                    first.set()
                elif json.loads(message)["type"] == "done":
                    return "done"
            return "SILENT"
    except ConnectionClosed as error:
        return f"no done, closed with {error.rcvd.code if error.rcvd else 1006}"


async def _cut_http10(long: dict[str, Any], first: asyncio.Event) -> str:
    reader, writer = await asyncio.open_connection("127.0.0.1", PORT)
    data = json.dumps({**long, "stream_format": "audio"}).encode()
    head = f"POST /v1/audio/speech HTTP/1.0\r\ncontent-length: {len(data)}\r\n"
    writer.write(head.encode() + b"content-type: application/json\r\n\r\n" + data)
    head_end = await reader.readuntil(b"\r\n\r\n")
    try:
        while await reader.read(65536):
            first.set()
    except ConnectionError:
        return "connection reset"
    finally:
        writer.close()
    return "content-length" if b"content-length" in head_end.lower() else "clean end, no end mark"


async def cuts(n_rounds: int) -> dict[str, dict[str, int]]:
    ways = "chunked", "sse", "websocket", "http/1.0"
    ends: dict[str, Counter[str]] = {how: Counter() for how in ways}
    for _ in range(n_rounds):
        firsts = [asyncio.Event() for _ in ways]
        tasks = [asyncio.create_task(cut(*pair)) for pair in zip(ways, firsts, strict=True)]
        await asyncio.wait_for(asyncio.gather(*(it.wait() for it in firsts)), 120)
        for pid, (_, title) in descendants(os.getpid()).items():
            if REPLICA in title:
                os.kill(pid, signal.SIGKILL)
        for how, end in zip(ways, await asyncio.gather(*tasks), strict=True):
            ends[how][end] += 1
        await asyncio.to_thread(proof._wait_for, URL.replace("v1/audio/speech", "health/ready"))
    return {how: dict(counts) for how, counts in ends.items()}


async def run(given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    home, store = folder / "home", folder / "store"
    home.mkdir()
    proof.make_voices(store, home)
    known = await expected(home)
    os.environ["PYTHONPATH"] = str(ROOT / "benchmarks/mixed_workers")
    os.environ["MIXED_WORKERS"] = str(folder / "workers")
    assert not set(known["usual"]) & set(known["default"]), "one kind of arithmetic"
    proof.start_ray()
    args = {
        "model": str(proof.MODEL), "home": str(home), "voices": str(store), "decoder": "meanflow",
        "threads": 1, "max_factor": 0.0, "cpus": 0.1, "drain_s": 5.0,
        "min_replicas": 2, "max_replicas": 2,
    }  # fmt: skip
    http = {"host": "127.0.0.1", "port": PORT}
    try:
        fleet.up({"proxy_location": "HeadOnly", "http_options": http}, args)
        moved = await moves(given, known)
        print(json.dumps(moved), flush=True)
        return {"moves": moved, "cuts": await cuts(given.rounds)}
    finally:
        fleet.down()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=5, help="of cuts")
    parser.add_argument("--keep", action="store_true", help="append to benchmarks/results")
    given, commit = parser.parse_args(), proof._commit()
    date = time.strftime("%Y-%m-%d", time.gmtime())
    with tempfile.TemporaryDirectory() as folder:
        line = asyncio.run(run(given, Path(folder)))
    ends = {how: set(counts) for how, counts in line["cuts"].items()}
    is_wrong = any(name.startswith("wrong") for name in line["moves"])
    is_silent = any(it & {"SILENT", "no end mark, clean end"} for it in ends.values())
    line = {"date": date, "commit": commit, "cores": os.cpu_count(), **line}
    print(json.dumps(line))
    if given.keep:
        with (ROOT / f"benchmarks/results/fleet-{date}.jsonl").open("a") as results:
            results.write(json.dumps(line) + "\n")
    sys.exit(1 if is_wrong or is_silent else 0)


if __name__ == "__main__":
    main()
