"""A fleet under fire: replicas are killed, rolled and scaled while clients listen.

    scripts/fleet python -m benchmarks.fleet --requests 5000 --clients 64 --kills 50

Ray Serve with its HAProxy, Fledgling, one torch thread for each replica. Expected bytes come from
one server without Ray, in the same run; `fleet_clients.py` compares. Exits with 1 if an answer was
wrong, or if one was never had.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import os
import platform
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from benchmarks.fleet_clients import N_VOICES, Result, catalogue, fetch, spread, sticky
from nightingale.fleet.ingress import INGRESS

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
PORT = 18000
N_MOST = 4  # replicas
N_COLD = 40  # voices that are asked for twice
N_PROBES = 25  # streams of probe chunks
REPLICA, WORKER = "ServeReplica:nightingale:Speech", "nightingale.server.worker"
_BETWEEN_KILLS_S = 3.0  # at least


def make_voices(store: Path, home: Path) -> None:
    """The model's own voice, as other people: in the store, and for the server without Ray."""
    from nightingale import Nightingale  # noqa: PLC0415

    own = Nightingale.load(MODEL, home=home, plan="live", decoder="meanflow").components.voice
    rng, shared = np.random.default_rng(0), SharedFolder(home / "copies", str(store))
    library = VoiceLibrary(home / "voices")
    names = [f"voice-{n}" for n in range(N_VOICES)] + [f"cold-{n}" for n in range(N_COLD)]
    for name in names:
        speaker = own.t3.speaker * (1 + 0.05 * rng.normal(size=256))
        t3 = replace(own.t3, speaker=speaker.astype(np.float32))
        data = to_bytes(Voice(t3, own.flow), VoiceMetadata("fledgling"))
        shared.put(name, data)
        library.put(name, data)


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


async def first_ms(client: httpx.AsyncClient, url: str, voice: str) -> tuple[float, float]:
    """To the first byte of sound; and without the server's own time to its first sound."""
    body, begun, first = {**catalogue()["Yes.0"], "voice": voice}, time.monotonic(), 0.0
    async with client.stream("POST", url, json=body) as reply:
        reply.raise_for_status()
        async for _ in reply.aiter_raw():
            first = first or 1e3 * (time.monotonic() - begun)
        inside = float(reply.headers["server-timing"].split("dur=")[1].split(",")[0])
    return first, first - inside


async def added_ms(box: str, ray: str, n: int) -> dict[str, Any]:
    """One request at a time, in turn at the server without Ray and at the fleet."""
    seen: dict[str, list[tuple[float, float]]] = {"one box": [], "fleet": []}
    async with httpx.AsyncClient(timeout=120) as client:
        for turn in range(n + 2):
            for name, url in (("one box", box), ("fleet", ray)):
                found = await first_ms(client, url, "voice-0")
                if turn >= 2:  # both are warm
                    seen[name].append(found)
    usual = float(np.median([rest for _, rest in seen["one box"]]))
    return {
        "first_sound_ms": {name: spread([it for it, _ in seen[name]]) for name in seen},
        "added_to_first_sound_ms": spread([rest - usual for _, rest in seen["fleet"]]),
    }


async def cold_and_warm(url: str) -> dict[str, Any]:
    """Each voice for the first time, then again, on a fleet that does nothing else."""
    cold, warm = [], []
    async with httpx.AsyncClient(timeout=120) as client:
        for number in range(N_COLD):
            cold.append((await first_ms(client, url, f"cold-{number}"))[0])
            warm.append((await first_ms(client, url, f"cold-{number}"))[0])
    return {"miss_ms": spread(cold), "hit_ms": spread(warm)}


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

    def __init__(
        self, given: argparse.Namespace, url: str, args: dict[str, Any], result: Result
    ) -> None:
        self._given, self._url, self._args, self._result = given, url, args, result
        self.n_kills = self.n_worker_kills = self.n_rolls = self.n_rolls_disturbed = 0
        self.settings: list[list[str]] = []  # that replicas answered with, before the next roll
        self.counts: list[int] = []  # of replicas that run, as they change
        self.is_over = False
        self._rng, self._begun = random.Random(1), time.monotonic()

    @property
    def progress(self) -> float:
        """From 0 to 1: of the requests, or of the time if that is further."""
        spent_s = time.monotonic() - self._begun
        n, minutes = int(self._given.requests), float(self._given.minutes)
        return max(self._result.n_done / n, spent_s / 60 / minutes)

    async def kill(self) -> None:
        """Evenly over the run, once the fleet has grown, and while two replicas run; of every five,
        one hits only the worker inside a replica."""
        while self.progress < 1:
            await asyncio.sleep(_BETWEEN_KILLS_S)
            n_due = 1.3 * self._given.kills * self.progress
            is_grown = max(self.counts, default=0) >= N_MOST or self.progress > 0.15
            is_alone = not self.counts or self.counts[-1] < 2
            if not is_grown or is_alone or self.n_kills + self.n_worker_kills >= n_due:
                continue
            below = descendants(os.getpid())
            workers = {parent: it for it, (parent, title) in below.items() if WORKER in title}
            targets = [it for it in workers if REPLICA in below.get(it, (0, ""))[1]]
            if len(targets) < 2:
                continue  # one is left for the clients
            target = self._rng.choice(targets)
            is_worker = (self.n_kills + self.n_worker_kills) % 5 == 4
            os.kill(workers[target] if is_worker else target, signal.SIGKILL)
            self.n_worker_kills += is_worker
            self.n_kills += not is_worker

    async def roll(self) -> None:
        """1 to 4 by autoscaling; then two replicas, then four."""
        for at, changed in (
            (0.34, {"min_replicas": 2, "max_replicas": 2, "max_characters": 9_001}),
            (0.67, {"min_replicas": 4, "max_replicas": N_MOST, "max_characters": 9_002}),
        ):
            while self.progress < at:
                await asyncio.sleep(0.5)
            await self.note_settings()
            await self.roll_to(changed)
            self.n_rolls += 1

    async def roll_to(self, changed: dict[str, int]) -> None:
        try:
            await asyncio.to_thread(fleet.roll, {**self._args, **changed})
        except RuntimeError:  # a replica was killed meanwhile; Ray goes on replacing them
            self.n_rolls_disturbed += 1

    async def note_settings(self) -> None:
        """Which configuration answers: a text that no replica takes names the limit of its own."""
        async with httpx.AsyncClient(timeout=60) as client:
            found = set()
            for body in list(catalogue().values())[::5]:
                try:
                    reply = await client.post(self._url, json={**body, "input": "a" * 30_000})
                    found.update(re.findall(r"9,?00\d|20,?000", reply.text))
                except httpx.HTTPError:
                    continue  # killed
        self.settings.append(sorted(found))

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
    chaos = Chaos(given, url, args, result)

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
                    shown = (
                        chaos.n_kills,
                        chaos.counts[-8:],
                        *map(dict, (result.failures, result.wrong)),
                    )
                    print(result.n_done, round(time.monotonic() - begun), *shown, flush=True)

    beside = [asyncio.create_task(it) for it in (chaos.kill(), chaos.roll(), chaos.watch())]
    await asyncio.gather(*(listen() for _ in range(given.clients)))
    took_s = time.monotonic() - begun
    await asyncio.wait(beside[:2])  # no kill and no roll is under way
    await chaos.note_settings()
    # And back to one: nobody asks any more.
    await chaos.roll_to({"max_characters": 9_003})
    until = time.monotonic() + 120
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
    parser.add_argument("--requests", type=int, default=5000, help="0: added times alone")
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
    args: dict[str, Any] = {
        "model": str(MODEL), "home": str(home), "voices": str(store), "decoder": "meanflow",
        "threads": 1, "max_factor": 0.0, "max_streams": 8, "max_waiting": 24, "cpus": 0.1,
        "drain_s": 10.0, "min_replicas": 1, "max_replicas": N_MOST, "streams_per_replica": 8.0,
        "upscale_delay_s": 2.0, "downscale_delay_s": 20.0, "min_slack_s": -1e6,
    }  # fmt: skip
    http = {"host": "127.0.0.1", "port": PORT}
    begun = time.monotonic()
    fleet.up({"proxy_location": "HeadOnly", "http_options": http}, args)
    up_s = time.monotonic() - begun
    url = f"http://127.0.0.1:{PORT}/v1/audio/speech"
    try:
        with one_box(home, PORT + 1) as box:
            expected = await expected_bytes(box)
            quiet = await added_ms(box, url, given.quiet_requests)
        quiet["sticky_alone"] = await cold_and_warm(url)
        probe_alone = await _probe_alone(N_PROBES)
        _deploy_probe()
        probe_ray = await transit_ms(f"http://127.0.0.1:{PORT}/probe", N_PROBES)
        quiet["per_chunk_ms"] = {"one box": spread(probe_alone), "fleet": spread(probe_ray)}
        print(json.dumps(quiet), flush=True)
        if not given.requests:
            return {"start_s": round(up_s, 1), **quiet}
        result, chaos, took_s = await storm(given, url, args, expected)
    finally:
        fleet.down()
    return {
        "requests": given.requests, "clients": given.clients, "took_s": round(took_s, 1),
        "done": result.n_done, "identical": result.n_identical, "wrong": dict(result.wrong),
        "moved": result.n_moved, "continued": result.n_resumed,
        "failures_retried": dict(result.failures.most_common()), "unnamed": result.n_unnamed,
        "replica_kills": chaos.n_kills, "worker_kills": chaos.n_worker_kills,
        "rolls": chaos.n_rolls, "rolls_disturbed_by_kills": chaos.n_rolls_disturbed,
        "settings_that_answered": chaos.settings, "replica_counts": chaos.counts,
        "start_s": round(up_s, 1),
        **quiet,
        "sticky_under_fire": sticky(result.answers),
    }  # fmt: skip


def _commit() -> str:
    command = ["git", "rev-parse", "--short", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    return done.stdout.strip()


def main() -> None:
    given, commit = arguments(), _commit()  # of the code that runs, whatever is committed meanwhile
    date = time.strftime("%Y-%m-%d", time.gmtime())  # on which it began
    with tempfile.TemporaryDirectory() as folder:
        line = asyncio.run(run(given, Path(folder)))
    line = {
        "date": date, "machine": platform.machine(),
        "cores": os.cpu_count(), "commit": commit, **line,
    }  # fmt: skip
    print(json.dumps(line))
    if given.keep:
        file = ROOT / f"benchmarks/results/fleet-{date}.jsonl"
        with file.open("a") as results:
            results.write(json.dumps(line) + "\n")
    is_whole = line.get("identical") == line.get("done") and not line.get("wrong")
    is_whole = is_whole and not line.get("unnamed")
    sys.exit(0 if is_whole else 1)


if __name__ == "__main__":
    main()
