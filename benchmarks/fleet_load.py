"""Open-loop load on a fleet of 1, 2 and 4 replicas: what the simulation is held to.

    scripts/fleet python -m benchmarks.fleet_load --replicas 1 2 4 --keep

Poisson arrivals of very short requests, one torch thread for each replica. All that the simulation
is given is measured with requests one at a time, before and after each run: the time to the first
sound and to the end, that of a request that is refused (which is the way and nothing else), and the
processor time that a request costs in all processes; then, with one request at a time on each of
two replicas, how much the cores slow each other.
Which replica a voice belongs to is asked of the idle fleet. The loaded runs are not used for the
fit. The machine should do nothing else.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import random
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from benchmarks.fleet import (
    MODEL,
    PORT,
    ROOT,
    _commit,
    descendants,
    fleet,
    make_voices,
    start_ray,
)
from benchmarks.fleet_clients import N_VOICES, catalogue
from benchmarks.fleet_simulation import poisson

SHORT = "Yes."
URL = f"http://127.0.0.1:{PORT}/v1/audio/speech"
_IDLE_S = 3.0


@dataclass(frozen=True, slots=True)
class Answer:
    """What a client saw."""

    first_s: float  # to the first sound
    whole_s: float  # to the end
    replica: str
    is_answered: bool


async def ask(client: httpx.AsyncClient, voice: int) -> Answer:
    body, begun = catalogue()[f"{SHORT}{voice}"], time.monotonic()
    async with client.stream("POST", URL, json=body) as reply:
        first_s = None
        async for _ in reply.aiter_raw():
            first_s = first_s or time.monotonic() - begun
        is_answered = reply.status_code == 200 and first_s is not None
        whole_s = time.monotonic() - begun
        return Answer(first_s or 0.0, whole_s, reply.headers.get("x-replica", ""), is_answered)


async def way(client: httpx.AsyncClient) -> float:
    """Seconds of a request without work: its text is empty, and so refused."""
    begun = time.monotonic()
    reply = await client.post(URL, json={**catalogue()[f"{SHORT}0"], "input": ""})
    assert 400 <= reply.status_code < 500, reply.status_code
    return time.monotonic() - begun


def processor_s() -> float:
    """Spent by this process and all below it, so far."""
    ticks = 0
    for pid in (os.getpid(), *descendants(os.getpid())):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue  # gone
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def machine_s() -> float:
    """Processor time that everybody on this machine has spent, and what the host took from it."""
    fields = [int(it) for it in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    user, nice, system, _idle, _iowait, irq, softirq, steal = fields[:8]
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


async def fit(n: int) -> dict[str, Any]:
    """One request at a time: its times, and what it costs the cores."""
    async with httpx.AsyncClient(timeout=120) as client:
        for voice in range(N_VOICES):
            await ask(client, voice)
        begun = processor_s()
        await asyncio.sleep(_IDLE_S)
        idle_cores = (processor_s() - begun) / _IDLE_S
        began_at, begun = time.monotonic(), processor_s()
        seen = [await ask(client, number % N_VOICES) for number in range(n)]
        took_s, spent_s = time.monotonic() - began_at, processor_s() - begun
        overhead_s = float(np.median([await way(client) for _ in range(n)]))
    work_s = sum(answer.whole_s - overhead_s for answer in seen)
    return {
        "first_s": [round(answer.first_s - overhead_s, 4) for answer in seen],
        "rest_s": round(float(np.median([a.whole_s - a.first_s for a in seen])), 4),
        "overhead_s": round(overhead_s, 4),
        "idle_cores": round(idle_cores, 3),
        "busy_cores": round((spent_s - idle_cores * took_s) / work_s, 3),
    }


async def pair_s(names: list[str], n: int) -> list[float]:
    """First sounds where two replicas work all the time: cores share caches and memory."""
    other = next(voice for voice, name in enumerate(names) if name != names[0])

    async def listen(client: httpx.AsyncClient, voice: int) -> list[Answer]:
        return [await ask(client, voice) for _ in range(n)]

    async with httpx.AsyncClient(timeout=120) as client:
        seen = await asyncio.gather(listen(client, 0), listen(client, other))
    return [answer.first_s for answers in seen for answer in answers[1:]]


async def homes() -> list[str]:
    """The replica of each voice."""
    async with httpx.AsyncClient(timeout=120) as client:
        names = [(await ask(client, voice)).replica for voice in range(N_VOICES)]
        for voice in range(N_VOICES):  # and warm
            await ask(client, voice)
    return names


async def loaded(rate: float, seconds: float, seed: int, names: list[str]) -> dict[str, Any]:
    """`names`: the replica that each voice belongs to."""
    rng = random.Random(seed)
    arrivals = poisson(rate, seconds, rng)
    voices = [rng.randrange(N_VOICES) for _ in arrivals]
    async with httpx.AsyncClient(timeout=120, limits=httpx.Limits(max_connections=500)) as client:
        await asyncio.gather(*(ask(client, voice) for voice in range(N_VOICES)))
        begun, ours_s, all_s = time.monotonic(), processor_s(), machine_s()

        async def arrive(at: float, voice: int) -> Answer:
            await asyncio.sleep(begun + at - time.monotonic())
            return await ask(client, voice)

        seen = await asyncio.gather(*map(arrive, arrivals, voices))
        took_s = time.monotonic() - begun
        others_s = machine_s() - all_s - (processor_s() - ours_s)
    firsts = [answer.first_s for answer in seen if answer.is_answered]
    at_home = [answer.replica == names[voice] for answer, voice in zip(seen, voices, strict=True)]
    p50, p95 = map(float, np.percentile(firsts, (50, 95)))
    return {
        "n": len(seen), "failed": len(seen) - len(firsts),
        "p50_s": round(p50, 4), "p95_s": round(p95, 4), "goodput": round(len(firsts) / took_s, 3),
        "at_home": round(float(np.mean(at_home)), 4),
        "other_cores": round(others_s / took_s, 3),  # that were busy with what is not ours
        "arrivals_s": [round(at, 4) for at in arrivals], "voices": voices,
        "first_s": [round(answer.first_s, 4) for answer in seen],
    }  # fmt: skip


async def measure(given: argparse.Namespace, n_replicas: int) -> dict[str, Any]:
    """A run under load, between two fits: the speed of a shared host drifts within minutes."""
    names = await homes()
    before = await fit(given.alone // 2)
    n_cores = (os.cpu_count() or 1) - before["idle_cores"]
    slowdown = 1.0
    if n_replicas > 1:
        both_s = float(np.mean(await pair_s(names, given.alone // 4)))
        alone_s = float(np.mean(before["first_s"])) + before["overhead_s"]
        share = min(1.0, n_cores / (2 * before["busy_cores"]))  # is accounted for by itself
        slowdown = round(max(1.0, share * both_s / alone_s), 3)
    n_at_once = min(n_replicas, n_cores / before["busy_cores"])
    rate = given.load * n_at_once / (float(np.mean(before["first_s"])) * slowdown)
    found = await loaded(rate, given.seconds, n_replicas, names)
    after = await fit(given.alone // 2)
    fitted = {
        name: round((before[name] + after[name]) / 2, 4) for name in before if name != "first_s"
    }
    fitted |= {"slowdown": slowdown, "first_s": before["first_s"] + after["first_s"]}
    drift = float(np.mean(after["first_s"]) / np.mean(before["first_s"]))
    numbers = [sorted(set(names)).index(name) for name in names]
    at = {
        "replicas": n_replicas,
        "rate": round(rate, 3),
        "homes": numbers,
        "drift": round(drift, 3),
    }
    return {**at, "fit": fitted, **found}


async def run(given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    home, store = folder / "home", folder / "store"
    home.mkdir()
    start_ray()
    make_voices(store, home)
    args: dict[str, Any] = {
        "model": str(MODEL), "home": str(home), "voices": str(store), "decoder": "meanflow",
        "threads": 1, "max_factor": 0.0, "max_streams": 1, "max_waiting": 500, "max_open": 500,
        "max_queued": 500, "cpus": 0.1, "drain_s": 2.0,
    }  # fmt: skip
    runs: list[dict[str, Any]] = []
    hidden = ("arrivals_s", "voices", "first_s", "fit")
    try:
        for n_replicas in given.replicas:
            sized = {**args, "min_replicas": n_replicas, "max_replicas": n_replicas}
            if runs:
                fleet.roll(sized)
            else:
                http = {"host": "127.0.0.1", "port": PORT}
                fleet.up({"proxy_location": "HeadOnly", "http_options": http}, sized)
            runs.append(await measure(given, n_replicas))
            print({name: it for name, it in runs[-1].items() if name not in hidden}, flush=True)
    finally:
        fleet.down()
    return {"runs": runs}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicas", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--alone", type=int, default=80, help="requests for the fit")
    parser.add_argument("--seconds", type=float, default=45.0)
    parser.add_argument("--load", type=float, default=0.5, help="of what the cores can do")
    parser.add_argument("--keep", action="store_true")
    given, commit = parser.parse_args(), _commit()
    with tempfile.TemporaryDirectory() as folder:
        line = asyncio.run(run(given, Path(folder)))
    line = {
        "date": time.strftime("%Y-%m-%d"), "machine": platform.machine(),
        "cores": os.cpu_count(), "commit": commit, "load": given.load, **line,
    }  # fmt: skip
    file = ROOT / f"benchmarks/results/fleet_load-{line['date']}.jsonl"
    if given.keep:
        with file.open("a") as results:
            results.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
