"""A fleet under fire: replicas are killed, rolled and scaled while clients listen.

    scripts/fleet python -m benchmarks.fleet --requests 5000 --clients 64 --kills 50

Ray Serve with its HAProxy, Fledgling, one torch thread for each replica. Expected bytes come from
one server without Ray, in the same run. Each answer is compared: identical, another request's
(cross-talk), different, or complete but too short (silent loss). What fails is retried as a client
would, from the byte that it has; every failure is counted by its name. Exits with 1 if an answer
was wrong, or if one was never had.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import platform
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from nightingale.fleet.config import INGRESS

os.environ.update(INGRESS)  # before Ray is imported
# A machine that others use as well starts processes slowly; none of this is measured.
os.environ |= {
    "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "90",
    "RAY_SERVE_PROXY_HEALTH_CHECK_TIMEOUT_S": "90",
    "RAY_SERVE_HAPROXY_STARTUP_TIMEOUT_S": "120",
}

from nightingale.core import Voice
from nightingale.fleet import app as fleet
from nightingale.fleet.voices import SharedFolder
from nightingale.voice.library import VoiceLibrary, to_bytes
from nightingale.voice.metadata import VoiceMetadata

ROOT = Path(__file__).parents[1]
MODEL = ROOT / "src/nightingale/fledgling"
WORDS = ("Yes.", "No.", "Now.", "Good.", "Thanks.")
N_VOICES = 8
LONG, N_LONG, N_SHORT = "Thanks.", 24, 6  # tokens of a stream of several chunks, and of others
MAX_TRIES = 400
PORT = 18000
REPLICA = "ServeReplica:nightingale:Speech"


@dataclass(slots=True)
class Result:
    """What the clients saw."""

    n_done: int = 0
    n_identical: int = 0
    n_moved: int = 0
    n_resumed: int = 0  # answers that were continued from a byte on
    wrong: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    first_ms: list[tuple[bool, float]] = field(default_factory=list)  # hit, undisturbed answers
    seen: set[tuple[str, str]] = field(default_factory=set)  # replica, voice

    def judge(self, name: str, data: bytes, expected: dict[str, str], n_expected: int) -> None:
        self.n_done += 1
        digest = hashlib.sha256(data).hexdigest()
        if digest == expected[name]:
            self.n_identical += 1
        elif digest in expected.values():
            self.wrong["cross-talk"] += 1
        else:
            self.wrong["silent loss" if len(data) < n_expected else "different"] += 1


def catalogue() -> dict[str, dict[str, Any]]:
    """Requests by name; equal names are equal requests."""
    found = {}
    for number, word in enumerate(WORDS):
        for voice in range(N_VOICES):
            body = {"input": word, "voice": f"voice-{voice}", "seed": number * 100 + voice}
            n_tokens = N_LONG if word == LONG else N_SHORT
            found[f"{word}{voice}"] = {**body, "max_tokens": n_tokens, "response_format": "pcm"}
    return found


def make_voices(store: Path, home: Path) -> None:
    """The model's own voice, as other people: in the store, and for the server without Ray."""
    from nightingale import Nightingale  # noqa: PLC0415

    own = Nightingale.load(MODEL, home=home, plan="live", decoder="meanflow").components.voice
    rng, shared = np.random.default_rng(0), SharedFolder(home / "copies", str(store))
    library = VoiceLibrary(home / "voices")
    for number in range(N_VOICES):
        speaker = own.t3.speaker * (1 + 0.05 * rng.normal(size=256))
        t3 = replace(own.t3, speaker=speaker.astype(np.float32))
        data = to_bytes(Voice(t3, own.flow), VoiceMetadata("fledgling"))
        shared.put(f"voice-{number}", data)
        library.put(f"voice-{number}", data)


async def fetch(
    client: httpx.AsyncClient, url: str, body: dict[str, Any], result: Result
) -> bytes | None:
    """One answer, whatever it takes; None: it was never had."""
    data, fingerprint = b"", ""
    for attempt in range(MAX_TRIES):
        headers = {"x-resume-from": str(len(data)), "x-fingerprint": fingerprint} if data else {}
        begun, n_before = time.monotonic(), len(data)
        try:
            async with client.stream("POST", url, json=body, headers=headers) as reply:
                if reply.status_code != 200:
                    code = _code(await reply.aread())
                    result.failures[f"{reply.status_code} {code}"] += 1
                    if reply.status_code == 410:
                        data = b""
                    await asyncio.sleep(min(2.0, 0.1 * 2**attempt) * random.random())
                    continue
                fingerprint = reply.headers["x-fingerprint"]
                async for piece in reply.aiter_raw():
                    if not data and attempt == 0:
                        _note_first(result, reply, body, 1e3 * (time.monotonic() - begun))
                    data += piece
                result.n_resumed += n_before > 0
                result.n_moved += "x-moved" in reply.headers
                return data
        except httpx.HTTPError as error:
            where = "in the body" if len(data) > n_before else "before it"
            result.failures[f"{type(error).__name__} {where}"] += 1
            await asyncio.sleep(0.1 * random.random())
    result.wrong["never had"] += 1
    return None


def _note_first(
    result: Result, reply: httpx.Response, body: dict[str, Any], first_ms: float
) -> None:
    place = reply.headers.get("x-replica", ""), str(body["voice"])
    result.first_ms.append((place in result.seen, first_ms))
    result.seen.add(place)


def _code(data: bytes) -> str:
    try:
        return str(json.loads(data)["error"]["code"])
    except (ValueError, KeyError, TypeError):
        return data.decode("latin-1")[:40].strip()


@contextmanager
def one_box(home: Path, port: int) -> Iterator[str]:
    """The server without Ray."""
    flags = ["--model", str(MODEL), "--decoder", "meanflow", "--threads", "1", "--port", str(port)]
    command = [sys.executable, "-m", "nightingale", "serve", *flags, "--max-factor", "0"]
    environ = {**os.environ, "NIGHTINGALE_HOME": str(home), "NIGHTINGALE_SERVE_WYOMING_PORT": "0"}
    with (home / "one.log").open("wb") as log:
        process = subprocess.Popen(command, env=environ, stdout=log, stderr=log)
    try:
        url = f"http://127.0.0.1:{port}/v1/audio/speech"
        _wait_for(f"http://127.0.0.1:{port}/health/ready")
        yield url
    finally:
        process.terminate()
        process.wait(30)


def _wait_for(url: str, max_s: float = 180.0) -> None:
    until = time.monotonic() + max_s
    while time.monotonic() < until:
        try:
            if httpx.get(url, timeout=5).status_code == 200:
                return
        except httpx.HTTPError:
            pass
        time.sleep(0.2)
    raise SystemExit(f"{url} does not answer")


async def added_ms(url: str, n: int) -> list[float]:
    """From the server's own first audio to the client's first byte, one request at a time."""
    found = []
    body = {**catalogue()["Yes.0"]}
    async with httpx.AsyncClient(timeout=120) as client:
        for _ in range(n):
            begun = time.monotonic()
            async with client.stream("POST", url, json=body) as reply:
                async for _ in reply.aiter_raw():
                    break
                first_ms = 1e3 * (time.monotonic() - begun)
                inside = reply.headers["server-timing"].split("dur=")[1].split(",")[0]
                found.append(first_ms - float(inside))
    return found


# A stream of chunks that carry the time at which they left: what is between is the ingress.
N_CHUNK, N_CHUNKS, EVERY_S = 19_200, 20, 0.02


class Probe:
    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            while (kind := (await receive())["type"]) != "lifespan.shutdown":
                await send({"type": f"{kind}.complete"})
            await send({"type": "lifespan.shutdown.complete"})
            return
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(N_CHUNKS):
            await asyncio.sleep(EVERY_S)
            left = time.monotonic_ns().to_bytes(8, "little")
            chunk = left + bytes(N_CHUNK - len(left))
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


probe = Probe()  # an object: Ray takes a function for a builder


async def transit_ms(url: str, n: int) -> list[float]:
    found: list[float] = []
    async with httpx.AsyncClient(timeout=60) as client:
        for _ in range(n):
            async with client.stream("POST", url, json={}) as reply:
                held = b""
                async for piece in reply.aiter_raw():
                    held += piece
                    while len(held) >= N_CHUNK:
                        left = int.from_bytes(held[:8], "little")
                        found.append((time.monotonic_ns() - left) / 1e6)
                        held = held[N_CHUNK:]
    return found


def spread(values: list[float]) -> dict[str, float]:
    if not values:
        return {"n": 0}
    p50, p95, p99 = np.percentile(values, (50, 95, 99))
    return {"n": len(values), "p50": round(p50, 2), "p95": round(p95, 2), "p99": round(p99, 2)}


def descendants(root: int) -> dict[int, tuple[int, str]]:
    """Parent and title of every process below this one."""
    command = ["ps", "-eo", "pid=,ppid=,args="]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    rows = [line.split(None, 2) for line in lines]
    known = {int(row[0]): (int(row[1]), row[2]) for row in rows if len(row) == 3}
    below, n_before = {root}, 0
    while len(below) > n_before:
        n_before = len(below)
        below |= {pid for pid, (parent, _) in known.items() if parent in below}
    return {pid: known[pid] for pid in below - {root}}


class Chaos:
    """Kills, rolls and scales while requests are made."""

    def __init__(self, given: argparse.Namespace, args: dict[str, Any], result: Result) -> None:
        self._given, self._args, self._result = given, args, result
        self.n_kills = self.n_worker_kills = self.n_rolls = 0
        self.counts: list[int] = []  # of replicas that run, as they change
        self.is_over = False
        self._rng, self._begun = random.Random(1), time.monotonic()

    async def kill(self) -> None:
        """Evenly over the time, while two replicas run; of every five, one hits only the worker
        inside a replica."""
        every_s, killed_at = 60 * self._given.minutes / (self._given.kills * 1.25), self._begun
        while not self.is_over:
            await asyncio.sleep(0.2)
            is_alone = not self.counts or self.counts[-1] < 2
            if is_alone or time.monotonic() < killed_at + every_s:
                continue
            below = descendants(os.getpid())
            targets = [it for it, (_, title) in below.items() if REPLICA in title]
            if len(targets) < 2:
                continue  # one is left for the clients
            killed_at = max(killed_at + every_s, time.monotonic() - every_s)
            target = self._rng.choice(targets)
            inside = [it for it, (parent, title) in below.items()
                      if parent == target and "nightingale.server.worker" in title]  # fmt: skip
            is_worker = (self.n_kills + self.n_worker_kills) % 5 == 4 and bool(inside)
            os.kill(inside[0] if is_worker else target, signal.SIGKILL)
            self.n_worker_kills += is_worker
            self.n_kills += not is_worker

    async def roll(self) -> None:
        """1 to 4 by autoscaling; then two replicas, then four."""
        minutes, fixed = self._given.minutes, self._args
        for at, changed in (
            (0.34, {"min_replicas": 2, "max_replicas": 2, "max_characters": 9_001}),
            (0.67, {"min_replicas": 4, "max_replicas": 4, "max_characters": 9_002}),
        ):
            while time.monotonic() < self._begun + 60 * at * minutes:
                await asyncio.sleep(0.5)
            await asyncio.to_thread(fleet.roll, {**fixed, **changed})
            self.n_rolls += 1

    async def watch(self) -> None:
        while not self.is_over:
            n_now = await asyncio.to_thread(fleet.n_running)
            if not self.counts or self.counts[-1] != n_now:
                self.counts.append(n_now)
            await asyncio.sleep(1.0)


async def storm(
    given: argparse.Namespace, url: str, args: dict[str, Any], expected: dict[str, tuple[str, int]]
) -> tuple[Result, Chaos, float]:
    bodies, result, begun = catalogue(), Result(), time.monotonic()
    sums = {name: digest for name, (digest, _) in expected.items()}
    rng, names = random.Random(0), list(bodies)
    wanted = iter([rng.choice(names) for _ in range(given.requests)])
    chaos = Chaos(given, args, result)

    async def listen() -> None:
        limits = httpx.Limits(max_connections=1)
        async with httpx.AsyncClient(timeout=httpx.Timeout(120), limits=limits) as client:
            for name in wanted:
                if time.monotonic() > begun + 60 * given.minutes:
                    return
                data = await fetch(client, url, bodies[name], result)
                if data is not None:
                    result.judge(name, data, sums, expected[name][1])
                if result.n_done % 100 == 0:
                    print(result.n_done, round(time.monotonic() - begun), chaos.n_kills,
                          chaos.counts, dict(result.failures),
                          dict(result.wrong), flush=True)  # fmt: skip

    beside = [asyncio.create_task(it) for it in (chaos.kill(), chaos.roll(), chaos.watch())]
    await asyncio.gather(*(listen() for _ in range(given.clients)))
    took_s = time.monotonic() - begun
    # And back to one: nobody asks any more.
    await asyncio.to_thread(fleet.roll, {**args, "max_characters": 9_003})
    until = time.monotonic() + 45
    while time.monotonic() < until and chaos.counts[-1] != 1:
        await asyncio.sleep(1.0)
    chaos.is_over = True
    await asyncio.wait(beside, timeout=10)
    return result, chaos, took_s


async def expected_bytes(url: str) -> dict[str, tuple[str, int]]:
    found: dict[str, tuple[str, int]] = {}
    async with httpx.AsyncClient(timeout=300) as client:
        gate = asyncio.Semaphore(4)

        async def ask(name: str, body: dict[str, Any]) -> None:
            async with gate:
                reply = await client.post(url, json=body)
            reply.raise_for_status()
            found[name] = hashlib.sha256(reply.content).hexdigest(), len(reply.content)

        await asyncio.gather(*(ask(name, body) for name, body in catalogue().items()))
    assert len({digest for digest, _ in found.values()}) == len(found), "requests sound alike"
    return found


async def _probe_alone(n: int) -> list[float]:
    import uvicorn  # noqa: PLC0415

    config = uvicorn.Config("benchmarks.fleet:probe", port=PORT + 2, log_level="error")
    process = subprocess.Popen(
        [sys.executable, "-m", "uvicorn", "benchmarks.fleet:probe", "--port", str(config.port),
         "--log-level", "error"], cwd=ROOT,
    )  # fmt: skip
    try:
        await asyncio.to_thread(_wait_for, f"http://127.0.0.1:{config.port}/")
        return await transit_ms(f"http://127.0.0.1:{config.port}/", n)
    finally:
        process.terminate()


def _deploy_probe() -> None:
    from ray import serve  # noqa: PLC0415

    deployment = serve.deployment(
        serve.ingress(probe)(type("ProbeDeployment", (), {})), name="Probe",
        ray_actor_options={"num_cpus": 0.1},
    )  # fmt: skip
    serve.run(deployment.bind(), name="probe", route_prefix="/probe")


def start_ray() -> None:
    """Ray gives its own processes 30 s, which a busy machine may need several times."""
    import ray  # noqa: PLC0415

    for attempt in range(6):
        try:
            ray.init(log_to_driver=False, include_dashboard=False, configure_logging=False)
            return
        except Exception as error:
            print(f"Ray did not start ({attempt}): {error}", flush=True)
            ray.shutdown()
    raise SystemExit("Ray does not start")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=5000)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--minutes", type=float, default=25.0, help="then no request is begun")
    parser.add_argument("--quiet-requests", type=int, default=60, help="for added times")
    parser.add_argument("--keep", action="store_true", help="append to benchmarks/results")
    return parser.parse_args()


async def run(given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    start_ray()
    home, store = folder / "home", folder / "store"
    home.mkdir()
    make_voices(store, home)
    with one_box(home, PORT + 1) as url:
        expected = await expected_bytes(url)
        alone_ms = await added_ms(url, given.quiet_requests)
    probe_alone = await _probe_alone(5)
    args: dict[str, Any] = {
        "model": str(MODEL), "home": str(home), "voices": str(store), "decoder": "meanflow",
        "threads": 1, "max_factor": 0.0, "max_streams": 8, "max_waiting": 16, "cpus": 0.1,
        "drain_s": 10.0, "min_replicas": 1, "max_replicas": 4, "streams_per_replica": 8.0,
        "upscale_delay_s": 2.0, "downscale_delay_s": 5.0, "min_slack_s": -1e6,
    }  # fmt: skip
    http = {"host": "127.0.0.1", "port": PORT}
    begun = time.monotonic()
    fleet.up({"proxy_location": "HeadOnly", "http_options": http}, args)
    up_s = time.monotonic() - begun
    url = f"http://127.0.0.1:{PORT}/v1/audio/speech"
    try:
        ray_ms = await added_ms(url, given.quiet_requests)
        _deploy_probe()
        probe_ray = await transit_ms(f"http://127.0.0.1:{PORT}/probe", 5)
        result, chaos, took_s = await storm(given, url, args, expected)
    finally:
        fleet.down()
    hits = [first for is_hit, first in result.first_ms if is_hit]
    misses = [first for is_hit, first in result.first_ms if not is_hit]
    return {
        "requests": given.requests, "clients": given.clients, "took_s": round(took_s, 1),
        "done": result.n_done, "identical": result.n_identical, "wrong": dict(result.wrong),
        "moved": result.n_moved, "continued": result.n_resumed,
        "failures_retried": dict(result.failures.most_common()),
        "replica_kills": chaos.n_kills, "worker_kills": chaos.n_worker_kills,
        "rolls": chaos.n_rolls, "replica_counts": chaos.counts, "start_s": round(up_s, 1),
        "added_to_first_sound_ms": {"one box": spread(alone_ms), "fleet": spread(ray_ms)},
        "added_per_chunk_ms": {"one box": spread(probe_alone), "fleet": spread(probe_ray)},
        "sticky": {
            "hit_rate": round(len(hits) / max(1, len(hits) + len(misses)), 4),
            "first_sound_hit_ms": spread(hits), "first_sound_miss_ms": spread(misses),
        },
    }  # fmt: skip


def _commit() -> str:
    command = ["git", "rev-parse", "--short", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False).stdout


def main() -> None:
    given = arguments()
    with tempfile.TemporaryDirectory() as folder:
        line = asyncio.run(run(given, Path(folder)))
    line = {
        "date": time.strftime("%Y-%m-%d"), "machine": platform.machine(),
        "cores": os.cpu_count(), "commit": _commit().strip(), **line,
    }  # fmt: skip
    print(json.dumps(line))
    if given.keep:
        file = ROOT / f"benchmarks/results/fleet-{line['date']}.jsonl"
        with file.open("a") as results:
            results.write(json.dumps(line) + "\n")
    is_whole = line["identical"] == line["done"] and not line["wrong"]
    sys.exit(0 if is_whole else 1)


if __name__ == "__main__":
    main()
