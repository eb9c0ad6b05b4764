"""Seconds of speech that a server makes a second for several clients, beside another version.

    python benchmarks/throughput.py                                  this code
    python benchmarks/throughput.py --source OLD/src --rounds 3      and another version, by turns
    python benchmarks/throughput.py --random-weights multilingual-hi --max-tokens 60     full size

Each client asks for one text after the other and takes the sound as it comes. Servers are started
anew for every round, with the bundled model or with random weights of a released model's size,
which never find the end of a text: `--max-tokens` does. The versions take turns, so that other load
meets both. Prints a line of JSON: medians of the rounds, and ours by theirs; also by seconds of the
worker's processor time, which other load disturbs less than it does the clock. The first sound is
the first audible sample.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import numpy as np

import nightingale
from nightingale.audio.audible import first_audible

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.serving import WORDS
from tests.server.running import Server, serving
from tests.tiny_release import full_s3gen, make_release

MODEL = Path(nightingale.__file__).parent / "fledgling"
BYTES_PER_S = 48_000  # pcm


@dataclass(slots=True)
class Counted:
    """Of one round."""

    speech_s: float = 0.0
    all_speech_s: float = 0.0  # also what came behind the end of the round
    first_ms: list[float] = field(default_factory=list)
    n_refused: int = 0


def is_audible(pcm: bytes) -> bool:
    """Not its first byte counts: some versions send the silence before the first word."""
    samples = np.frombuffer(pcm[: len(pcm) // 2 * 2], "<i2").astype(np.float32)
    return first_audible(samples / np.float32(2**15)) is not None


async def listen(client: httpx.AsyncClient, server: Server, seed: int, until: float) -> Counted:
    """One client."""
    rng, found = random.Random(seed), Counted()
    while time.monotonic() < until:
        text = " ".join(rng.choices(WORDS, k=12)).capitalize() + "."
        body = server.body(text, seed=rng.randrange(2**31))
        begun, is_heard = time.monotonic(), False
        async with client.stream("POST", f"{server.url}/v1/audio/speech", json=body) as reply:
            if reply.status_code != 200:
                found.n_refused += 1
                await asyncio.sleep(0.2)
                continue
            async for piece in reply.aiter_raw():
                if not is_heard and is_audible(piece):
                    found.first_ms.append(1e3 * (time.monotonic() - begun))
                    is_heard = True
                found.all_speech_s += len(piece) / BYTES_PER_S
                if time.monotonic() < until:
                    found.speech_s += len(piece) / BYTES_PER_S
    return found


async def count(server: Server, n_clients: int, seconds: float) -> Counted:
    async with httpx.AsyncClient(timeout=300) as client:
        await client.post(f"{server.url}/v1/audio/speech", json=server.body("Ready.", seed=1))
        until = time.monotonic() + seconds
        clients = (listen(client, server, seed, until) for seed in range(n_clients))
        found = await asyncio.gather(*clients)
    return Counted(
        sum(one.speech_s for one in found),
        sum(one.all_speech_s for one in found),
        [ms for one in found for ms in one.first_ms],
        sum(one.n_refused for one in found),
    )


def cpu_seconds(pid: int) -> float:
    """Of a process, since its start."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def one_round(model: Path, source: Path | None, given: argparse.Namespace) -> dict[str, float]:
    environ = {"PYTHONPATH": str(source)} if source else {}
    flags = given.flags.split() if source is None else []
    flags += ["--plan", given.plan] if given.plan else []
    options = {"max_tokens": given.max_tokens} if given.max_tokens else {}
    with (
        tempfile.TemporaryDirectory() as home,
        serving(model, Path(home), options, *flags, **environ) as server,
    ):
        begun = cpu_seconds(server.worker())
        found = asyncio.run(count(server, given.clients, given.seconds))
        spent = cpu_seconds(server.worker()) - begun
    first = sorted(found.first_ms) or [0.0]
    return {
        "speech_per_s": found.speech_s / given.seconds,
        "speech_per_cpu_s": found.all_speech_s / spent,
        "first_p50_ms": statistics.median(first),
        "first_p95_ms": first[int(0.95 * (len(first) - 1))],
        "refused": found.n_refused,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--source", type=Path, help="src of another version of the code")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--flags", default="--max-factor 0 --max-prebuffer 0", help="of this version's server"
    )
    parser.add_argument("--plan", help="of both versions' servers")
    parser.add_argument("--random-weights", metavar="MODEL", help="of the size of that one")
    parser.add_argument("--max-tokens", type=int, help="of a request: 25 are a second")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        model = MODEL
        if given.random_weights:
            model = make_release(Path(folder) / "release", given.random_weights, full_size=True)
            full_s3gen(model / "s3gen_meanflow.safetensors", meanflow=True)  # two steps, not ten
        print(json.dumps(compare(model, given)))


def compare(model: Path, given: argparse.Namespace) -> dict[str, Any]:
    versions = {"this": None} | ({"other": given.source} if given.source else {})
    rounds: dict[str, list[dict[str, float]]] = {name: [] for name in versions}
    for _ in range(given.rounds):
        for name, source in versions.items():
            rounds[name].append(one_round(model, source, given))
            print(name, rounds[name][-1], file=sys.stderr, flush=True)
    facts: dict[str, Any] = {
        "model": given.random_weights or "fledgling",
        "clients": given.clients,
        "seconds": given.seconds,
    }
    for name, found in rounds.items():
        facts[name] = {
            key: round(statistics.median(one[key] for one in found), 2) for key in found[0]
        }
    if given.source:
        for name, key in (("ratio", "speech_per_s"), ("cpu_ratio", "speech_per_cpu_s")):
            facts[name] = round(facts["this"][key] / facts["other"][key], 2)
    return facts


if __name__ == "__main__":
    main()
