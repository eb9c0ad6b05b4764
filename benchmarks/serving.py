"""What the server promises, tried for long: identity, kills, overload, latency, soak.

    python benchmarks/serving.py identity --requests 20000 --clients 64     through a bad network
    python benchmarks/serving.py kills --kills 200 --clients 8              kill -9 of the worker
    python benchmarks/serving.py long_kills --kills 100                     in long texts; --plant
    python benchmarks/serving.py overload --seconds 120                     ten times what it can do
    python benchmarks/serving.py overload --max-factor 0                    must fail: it has gaps
    python benchmarks/serving.py latency                                    what the server adds
    python benchmarks/serving.py soak --minutes 60                          memory, handles, threads
    python benchmarks/serving.py soak --minutes 6 --leak                    must fail: it leaks

Each starts a server of its own (--model), prints a line of JSON, and fails if a promise is broken.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.chaos import Chaos
from benchmarks.long_kills import long_kills
from benchmarks.scales import Scales
from tests.server.browser import repeating
from tests.server.running import Server, serving

WORDS = (
    "the",
    "a",
    "fox",
    "dog",
    "house",
    "river",
    "seven",
    "night",
    "bird",
    "song",
    "blue",
    "old",
)
_NOTICED_S = 0.1  # a shorter gap is covered by any player's own buffer
_PCM_BYTES_PER_S = 2 * 24_000
_QUEUE_S = 25.0  # somewhat less than the deadline of the server's queue
FORMATS = ("pcm", "wav", "flac", "mp3", "mulaw", "sse")


def distinct(server: Server, n: int, n_words: int, seed: int = 0) -> list[dict[str, Any]]:
    """Requests of which no two are alike."""
    rng = random.Random(seed)
    asked = []
    for number in range(seed * n, (seed + 1) * n):
        text = " ".join(rng.choices(WORDS, k=n_words)).capitalize() + f" {number}."
        form = rng.choice(FORMATS)
        fields = {"stream_format": "sse", "response_format": "pcm"} if form == "sse" else {}
        asked.append({"input": text, "seed": number, "response_format": form})
        asked[-1] |= {**fields, **server.options}
    return asked


async def ask(client: httpx.AsyncClient, url: str, body: dict[str, Any]) -> str:
    """The sum of a whole answer; whatever is not a whole one is raised."""
    total = sha256()
    async with client.stream("POST", f"{url}/v1/audio/speech", json=body) as reply:
        if reply.status_code != 200:
            await reply.aread()
            raise httpx.HTTPStatusError(
                reply.json()["error"]["code"], request=reply.request, response=reply
            )
        tail = b""
        async for piece in reply.aiter_raw():
            total.update(piece)
            tail = (tail + piece)[-200:]
    if body.get("stream_format") == "sse" and b"speech.audio.done" not in tail:
        raise httpx.RemoteProtocolError("no end mark")
    return total.hexdigest()


@asynccontextmanager
async def asking(n_clients: int, timeout_s: float = 120) -> AsyncIterator[httpx.AsyncClient]:
    limits = httpx.Limits(max_connections=2 * n_clients, max_keepalive_connections=0)
    async with httpx.AsyncClient(limits=limits, timeout=timeout_s) as client:
        yield client


async def alone(url: str, bodies: list[dict[str, Any]]) -> list[str]:
    """One after the other, nobody else there, no bad network."""
    async with asking(1) as client:
        return [await ask(client, url, body) for body in bodies]


async def identity(server: Server, given: argparse.Namespace) -> dict[str, Any]:
    """Every whole answer is the one that it would have been alone; every other is an error."""
    bodies = distinct(server, given.distinct, given.words, given.seed)
    expected = await alone(server.url, bodies)
    port = int(server.url.rpartition(":")[2])
    left, errors = iter(range(given.requests)), Counter[str]()
    n_whole = n_wrong = 0

    async with Chaos(port, seed=given.seed) as chaos, asking(given.clients) as client:

        async def listen() -> None:
            nonlocal n_whole, n_wrong
            for number in left:
                which = (number * 7919) % len(bodies)
                for _ in range(20):
                    try:
                        got = await ask(client, f"http://127.0.0.1:{chaos.port}", bodies[which])
                    except httpx.HTTPStatusError as error:
                        errors[str(error)] += 1
                        await asyncio.sleep(0.2)
                    except httpx.HTTPError as error:
                        errors[type(error).__name__] += 1
                    else:
                        n_whole += 1
                        n_wrong += got != expected[which]
                        if n_whole % 500 == 0:
                            print(f"{n_whole}, {n_wrong} wrong", file=sys.stderr, flush=True)
                        break
                else:
                    errors["given up"] += 1

        begun = time.monotonic()
        async with Scales(server) as scales:
            await asyncio.gather(*(listen() for _ in range(given.clients)))
        seconds = time.monotonic() - begun
    n_sent = n_whole + errors.total() - errors["given up"]
    return {
        "sent": n_sent, "whole": n_whole, "wrong": n_wrong, "errors": dict(errors),
        "network": dict(chaos.counts),
        "seconds": round(seconds, 1), **scales.facts(),
        "ok": n_wrong == 0 and n_whole == given.requests,
    }  # fmt: skip


async def kills(server: Server, given: argparse.Namespace) -> dict[str, Any]:
    """`kill -9` again and again under live streams: none is lost, all are the same."""
    bodies = distinct(server, given.distinct, 3 * given.words)
    expected = await alone(server.url, bodies)
    errors, is_over = Counter[str](), False
    n_whole = n_wrong = 0
    rng = random.Random(given.seed)
    pauses: list[float] = []

    async def listen(number: int) -> None:
        nonlocal n_whole, n_wrong
        while not is_over:
            which = number % len(bodies)
            number += given.clients
            try:
                got = await ask(client, server.url, bodies[which])
            except httpx.HTTPError as error:
                errors[str(error) or type(error).__name__] += 1
            else:
                n_whole += 1
                n_wrong += got != expected[which]

    async with asking(given.clients, 600) as client:
        listeners = [asyncio.create_task(listen(n)) for n in range(given.clients)]
        for number in range(given.kills):
            lived_s = pauses[-1] if pauses else 1.0  # a slow machine is slow at all of it
            await asyncio.sleep(rng.uniform(0.0, 2.0) * lived_s)
            worker = server.worker()
            os.kill(worker, signal.SIGKILL)
            begun = time.monotonic()
            if rng.random() < 0.2:  # the next one dies while it starts
                while (young := server.worker()) in (0, worker):
                    await asyncio.sleep(0.05)
                await asyncio.sleep(rng.uniform(0.0, 1.5))
                os.kill(young, signal.SIGKILL)
                worker = young
            while server.worker() in (0, worker) or not await _is_up(client, server):
                await asyncio.sleep(0.05)
            pauses.append(time.monotonic() - begun)
            if number % 10 == 9:
                print(f"{number + 1} kills, {n_whole} streams", file=sys.stderr, flush=True)
        is_over = True
        await asyncio.gather(*listeners)
    return {
        "kills": given.kills, "streams": n_whole, "wrong": n_wrong, "lost": dict(errors),
        "resumed": server.meter("resumed_total"),
        "restart_p50_s": round(statistics.median(pauses), 2),
        "ok": n_wrong == 0 and not errors,
    }  # fmt: skip


async def _is_up(client: httpx.AsyncClient, server: Server) -> bool:
    return "\nnightingale_worker_up 1.0" in (await client.get(f"{server.url}/metrics")).text


async def overload(server: Server, given: argparse.Namespace) -> dict[str, Any]:
    """Ten times as many as it can do come, whether or not others are done.

    Who is admitted must hear no gap: a client plays from the first audio on, as it arrives.
    """
    bodies = [
        body | {"response_format": "pcm", "stream_format": "audio"}
        for body in distinct(server, given.distinct, given.words)
    ]
    await alone(server.url, bodies[:2])  # its speed is known from then on
    peak = await _closed(server, bodies, given.seconds)
    rng, tasks, waits = random.Random(given.seed), set[asyncio.Task[None]](), list[float]()
    counts, held = Counter[str](), server.meter("worker_memory_bytes")
    missed = server.meter("underruns_total")  # as the server sees it; the difference is the network
    gaps: list[float] = []  # the longest of each stream that was admitted

    async def come(body: dict[str, Any]) -> None:
        begun = time.monotonic()
        head, rest, gap_s = await _plainly(server.url, body)
        if head.startswith(b"HTTP/1.1 200"):
            assert rest.endswith(b"0\r\n\r\n"), "it was cut"
            counts["spoken"] += time.monotonic() < until
            gaps.append(gap_s)
            return
        counts[json.loads(rest)["error"]["code"]] += 1
        counts["without retry-after"] += b"retry-after:" not in head
        if time.monotonic() - begun < _QUEUE_S:  # others waited in the queue until its deadline
            waits.append(1e3 * (time.monotonic() - begun))

    begun = time.monotonic()
    until = begun + given.seconds
    while time.monotonic() < until:
        await asyncio.sleep(rng.expovariate(10 * peak))
        task = asyncio.create_task(come(rng.choice(bodies)))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    await asyncio.gather(*tasks)
    goodput = counts["spoken"] / given.seconds
    waits.sort()
    reject_p99_ms = waits[int(0.99 * len(waits))] if waits else 0.0
    grown = server.meter("worker_memory_bytes") - held
    gapless = sum(gap <= _NOTICED_S for gap in gaps) / max(1, len(gaps))
    return {
        "peak_per_s": round(peak, 2), "goodput_per_s": round(goodput, 2), "counts": dict(counts),
        "admitted": len(gaps), "gapless": round(gapless, 4),
        "longest_gap_s": round(max(gaps, default=0.0), 2),
        "server_underruns": int(server.meter("underruns_total") - missed),
        "reject_p50_ms": round(waits[len(waits) // 2], 1) if waits else None,
        "reject_p99_ms": round(reject_p99_ms, 1),
        "worker_grown_mb": round(grown / 1e6, 1),
        "ok": goodput >= 0.95 * peak and reject_p99_ms < 20 and gapless >= 0.99 and bool(gaps),
    }  # fmt: skip


async def _plainly(url: str, body: dict[str, Any]) -> tuple[bytes, bytes, float]:
    """Head and body of an answer, and the longest gap that a player of its pcm would have.

    With as little work here as can be: both share two cores. The framing of HTTP's chunks counts as
    sound, which is less than a millisecond for each.
    """
    host, _, port = url.removeprefix("http://").partition(":")
    facts = json.dumps(body).encode()
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(
        f"POST /v1/audio/speech HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(facts)}\r\n\r\n".encode()
        + facts
    )
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).removesuffix(b"\r\n\r\n")
        rest, played_until, longest_s = bytearray(), 0.0, 0.0
        while piece := await reader.read(2**16):
            now = time.monotonic()
            is_sound = piece != b"0\r\n\r\n"
            if rest and is_sound:
                longest_s = max(longest_s, now - played_until)
            played_until = max(played_until, now) + len(piece) / _PCM_BYTES_PER_S
            rest += piece
    finally:
        writer.close()
    return head, bytes(rest), longest_s


async def _closed(server: Server, bodies: list[dict[str, Any]], seconds: float) -> float:
    """As many a second as can be done when as many ask as are spoken for at once."""
    n_done, begun = 0, time.monotonic()
    until = begun + seconds

    async def listen(number: int) -> None:
        nonlocal n_done
        while time.monotonic() < until:
            try:
                await ask(client, server.url, bodies[number % len(bodies)])
            except httpx.HTTPStatusError:  # it waited in the queue until its deadline
                await asyncio.sleep(0.1)
                continue
            number += 8
            n_done += 1

    async with asking(8) as client:
        await asyncio.gather(*(listen(n) for n in range(8)))
    return n_done / (time.monotonic() - begun)


async def latency(server: Server, given: argparse.Namespace) -> dict[str, Any]:
    """First samples in this process and first bytes from the server, by turns."""
    import torch  # noqa: PLC0415

    from nightingale.pipeline import Nightingale  # noqa: PLC0415

    torch.set_num_threads(1)
    model = Nightingale.load(given.model, home=server.home, plan="live")
    here, there, facts = [], [], []
    async with httpx.AsyncClient(timeout=60) as client:
        for number in range(given.rounds + 3):
            text = f"The quick brown fox number {number} jumps over the lazy dog."
            begun = time.perf_counter()
            speech = model.stream(text, seed=number)
            next(speech)
            here.append(1e3 * (time.perf_counter() - begun))
            speech.cancel()
            begun = time.perf_counter()
            body = {"input": text, "seed": number, "response_format": "pcm"}
            url = f"{server.url}/v1/audio/speech"
            async with client.stream("POST", url, json=body) as reply:
                async for _ in reply.aiter_raw():
                    there.append(1e3 * (time.perf_counter() - begun))
                    break
                facts.append(float(reply.headers["server-timing"].partition("dur=")[2]))
            await asyncio.sleep(0.3)  # until it has noticed that nobody listens
    here, there, facts = here[3:], there[3:], facts[3:]
    added = statistics.median(there) - statistics.median(here)
    return {
        "here_p50_ms": round(statistics.median(here), 1),
        "there_p50_ms": round(statistics.median(there), 1),
        "until_sent_p50_ms": round(statistics.median(facts), 1),
        "added_p50_ms": round(added, 1), "ok": added <= 10,
    }  # fmt: skip


async def soak(server: Server, given: argparse.Namespace) -> dict[str, Any]:
    """Mixed load; memory, handles and threads of both processes, from the first quarter on."""
    bodies, until = (
        distinct(server, given.distinct, given.words),
        time.monotonic() + 60 * given.minutes,
    )
    errors, rng, n_done = Counter[str](), random.Random(given.seed), 0

    async def listen() -> None:
        nonlocal n_done
        while time.monotonic() < until:
            body = rng.choice(bodies)
            try:
                if rng.random() < 0.2:  # leaves in the middle
                    url = f"{server.url}/v1/audio/speech"
                    async with client.stream("POST", url, json=body) as reply:
                        async for _ in reply.aiter_raw():
                            break
                elif rng.random() < 0.1:
                    await client.post(f"{server.url}/v1/audio/speech", json={"input": ""})
                else:
                    await ask(client, server.url, body)
                n_done += 1
            except httpx.HTTPError as error:
                errors[str(error) or type(error).__name__] += 1

    weighing = Scales(server, min(10, 6 * given.minutes))
    async with asking(given.clients) as client, weighing as scales:
        await asyncio.gather(*(listen() for _ in range(given.clients)))
    facts = scales.facts()
    is_ok = not errors and not facts["grown"]
    return {"done": n_done, "errors": dict(errors), **facts, "ok": is_ok}


TRIALS = {trial.__name__: trial for trial in (identity, kills, long_kills, overload, latency, soak)}


def with_planted(name: str) -> str:
    """A path on which Python finds a fault before it finds us."""
    usual = os.environ.get("PYTHONPATH")
    return os.pathsep.join([str(Path(__file__).parent / name), *([usual] if usual else [])])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=tuple(TRIALS))
    parser.add_argument("--model", required=True, type=Path, help="a folder of its files")
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--distinct", type=int, default=64)
    parser.add_argument("--words", type=int, default=4, help="of a text, beside its number")
    parser.add_argument("--max-tokens", type=int, help="cut what is spoken: more requests an hour")
    parser.add_argument("--decoder", help="of the server; meanflow takes 2 steps instead of 10")
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--max-factor", type=float, help="of the server; 0 must fail overload")
    parser.add_argument("--factor", type=float, help="of a worker that repeats one text (overload)")
    parser.add_argument("--leak", action="store_true", help="plant a leak in both processes")
    parser.add_argument("--longest", type=float, default=120, help="position of a kill, seconds")
    parser.add_argument("--plant", action="store_true", help="plant a resume that loses a sample")
    given = parser.parse_args()
    most = str(given.clients) if given.what == "identity" else "8"
    flags = ["--log-level", "warning", "--max-requests", most]
    flags += ["--decoder", given.decoder] if given.decoder else []
    # The others need many streams beside each other, gapless or not.
    max_factor = given.max_factor if given.what in ("overload", "latency") else 0
    flags += [] if max_factor is None else ["--max-factor", str(max_factor)]
    planted = "leak" if given.leak else "wrong_resume" if given.plant else ""
    faults = {"PYTHONPATH": with_planted(planted)} if planted else {}
    options = {"max_tokens": given.max_tokens} if given.max_tokens else {}
    with (
        tempfile.TemporaryDirectory() as home,
        repeating(given.model, Path(home), given.factor, *flags)
        if given.factor
        else serving(given.model, Path(home), options, *flags, **faults) as server,
    ):
        facts = asyncio.run(TRIALS[given.what](server, given))
        print(json.dumps({"what": given.what, **facts}), flush=True)
    sys.exit(0 if facts["ok"] else 1)


if __name__ == "__main__":
    main()
