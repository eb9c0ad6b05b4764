"""Open-loop load on a fleet of 1, 2 and 4 replicas: what the simulation is held to.

    scripts/fleet python -m benchmarks.fleet_load --replicas 1 2 4 --keep

Poisson arrivals of very short requests, one torch thread for each replica. The work of a request
is fitted from requests one at a time, on one replica, in the same run; the loaded runs are not used
for the fit.
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
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from benchmarks.fleet import (
    MODEL,
    N_VOICES,
    PORT,
    ROOT,
    _commit,
    catalogue,
    fleet,
    make_voices,
    start_ray,
)
from benchmarks.fleet_simulation import poisson

SHORT = "Yes."
URL = f"http://127.0.0.1:{PORT}/v1/audio/speech"


async def first_sound(client: httpx.AsyncClient, voice: int) -> tuple[float, bool]:
    """Seconds to the first sound, and whether it was answered."""
    body, begun = catalogue()[f"{SHORT}{voice}"], time.monotonic()
    async with client.stream("POST", URL, json=body) as reply:
        first_s = None
        async for _ in reply.aiter_raw():
            first_s = first_s or time.monotonic() - begun
        return first_s or 0.0, reply.status_code == 200 and first_s is not None


async def alone(n: int) -> list[float]:
    async with httpx.AsyncClient(timeout=120) as client:
        for voice in range(N_VOICES):
            await first_sound(client, voice)
        return [(await first_sound(client, n % N_VOICES))[0] for n in range(n)]


async def loaded(rate: float, seconds: float, seed: int) -> dict[str, Any]:
    rng = random.Random(seed)
    arrivals = poisson(rate, seconds, rng)
    voices = [rng.randrange(N_VOICES) for _ in arrivals]
    async with httpx.AsyncClient(timeout=120, limits=httpx.Limits(max_connections=500)) as client:
        await asyncio.gather(*(first_sound(client, voice) for voice in range(N_VOICES)))
        begun = time.monotonic()

        async def ask(at: float, voice: int) -> tuple[float, bool]:
            await asyncio.sleep(begun + at - time.monotonic())
            return await first_sound(client, voice)

        seen = await asyncio.gather(*map(ask, arrivals, voices))
        took_s = time.monotonic() - begun
    firsts = [first_s for first_s, is_answered in seen if is_answered]
    p50, p95 = np.percentile(firsts, (50, 95))
    return {
        "arrivals_s": [round(at, 4) for at in arrivals], "voices": voices,
        "p50_s": round(p50, 4), "p95_s": round(p95, 4), "goodput": round(len(firsts) / took_s, 3),
        "n": len(seen), "failed": len(seen) - len(firsts),
    }  # fmt: skip


async def run(given: argparse.Namespace, folder: Path) -> dict[str, Any]:
    home, store = folder / "home", folder / "store"
    home.mkdir()
    start_ray()
    make_voices(store, home)
    args: dict[str, Any] = {
        "model": str(MODEL), "home": str(home), "voices": str(store), "decoder": "meanflow",
        "threads": 1, "max_factor": 0.0, "max_streams": 1, "max_waiting": 500, "max_open": 500,
        "max_queued": 500,
        "cpus": 0.1, "drain_s": 2.0,
    }  # fmt: skip
    runs, works = [], list[float]()
    try:
        for n_replicas in given.replicas:
            sized = {**args, "min_replicas": n_replicas, "max_replicas": n_replicas}
            if not works:
                http = {"host": "127.0.0.1", "port": PORT}
                fleet.up({"proxy_location": "HeadOnly", "http_options": http}, sized)
                works = await alone(given.alone)
            else:
                fleet.roll(sized)
            capacity = min(n_replicas, os.cpu_count() or 1) / float(np.mean(works))
            rate = given.load * capacity
            found = await loaded(rate, given.seconds, n_replicas)
            runs.append({"replicas": n_replicas, "rate": round(rate, 3), **found})
            print({name: runs[-1][name] for name in ("replicas", "p50_s", "p95_s", "goodput")})
    finally:
        fleet.down()
    return {"fit_work_s": [round(it, 4) for it in works], "overhead_s": 0.0, "runs": runs}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--replicas", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--alone", type=int, default=40, help="requests for the fit")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--load", type=float, default=0.5, help="of what the cores can do")
    parser.add_argument("--keep", action="store_true")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        line = asyncio.run(run(given, Path(folder)))
    line = {
        "date": time.strftime("%Y-%m-%d"), "machine": platform.machine(),
        "cores": os.cpu_count(), "commit": _commit().strip(), "load": given.load, **line,
    }  # fmt: skip
    file = ROOT / f"benchmarks/results/fleet_load-{line['date']}.jsonl"
    if given.keep:
        with file.open("a") as results:
            results.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
