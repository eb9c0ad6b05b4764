"""What listeners notice while voices are cloned: gaps between pieces of live streams.

    python benchmarks/cloning.py --model src/nightingale/fledgling

Phases without and with cloning take turns. In the latter, recordings are uploaded one after the
other, or several at once (--uploads). Prints a line of JSON; fails if the longest gap grows by more
than --allowed-ms, if a stream has other bytes than in a phase without cloning, or if no voice was
made.
"""

from __future__ import annotations

import argparse
import asyncio
import io
import json
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import soundfile

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.server.running import Server, serving

TEXT = (
    "The river runs past the old house, and nobody has counted its stones. "
    "In the evening a bird sings there, seven notes and then a rest. "
    "We listened for a while and went home through the fields. "
)
RATE_HZ = 24_000


@dataclass(slots=True)
class Heard:
    """What the listeners of one phase noticed."""

    gaps_ms: list[float] = field(default_factory=list)  # between two pieces of a stream
    late_ms: float = 0.0  # the longest time that a player ran dry, from its first piece on
    sums: set[str] = field(default_factory=set)
    n_streams: int = 0

    def figures(self) -> dict[str, float]:
        ordered = sorted(self.gaps_ms) or [0.0]
        return {
            "streams": self.n_streams,
            "gap_p50_ms": round(statistics.median(ordered), 1),
            "gap_p99_ms": round(ordered[int(0.99 * (len(ordered) - 1))], 1),
            "gap_max_ms": round(ordered[-1], 1),
            "late_max_ms": round(self.late_ms, 1),
        }


def clip(seconds: float) -> bytes:
    """Somebody humming in syllables, as FLAC."""
    time_s = np.arange(int(seconds * RATE_HZ)) / RATE_HZ
    phase = 2 * np.pi * np.cumsum(140 + 30 * np.sin(2 * np.pi * 0.7 * time_s)) / RATE_HZ
    hum = sum(np.sin(phase * harmonic) / harmonic for harmonic in range(1, 12))
    syllables = np.clip(np.sin(2 * np.pi * 2.5 * time_s), 0, 1)
    file = io.BytesIO()
    soundfile.write(file, (0.15 * hum * syllables).astype(np.float32), RATE_HZ, format="FLAC")
    return file.getvalue()


async def listen(
    client: httpx.AsyncClient, server: Server, text: str, until: float, heard: Heard
) -> None:
    """Streams, one after the other; the last one is heard to its end."""
    while time.monotonic() < until:
        body = server.body(text, seed=1, prebuffer=False)
        total, n_bytes, first, last = sha256(), 0, 0.0, 0.0
        async with client.stream("POST", f"{server.url}/v1/audio/speech", json=body) as reply:
            reply.raise_for_status()
            async for piece in reply.aiter_raw():
                now = time.monotonic()
                if n_bytes:
                    heard.gaps_ms.append(1e3 * (now - last))
                    played_s = n_bytes / 2 / RATE_HZ
                    heard.late_ms = max(heard.late_ms, 1e3 * (now - first - played_s))
                first, last = first or now, now
                n_bytes += len(piece)
                total.update(piece)
        heard.sums.add(total.hexdigest())
        heard.n_streams += 1


async def upload(
    client: httpx.AsyncClient, server: Server, data: bytes, until: float, made: list[float]
) -> None:
    """Voices, one after the other; each is deleted at once."""
    while time.monotonic() < until:
        name, begun = f"clone-{time.monotonic_ns()}", time.monotonic()
        reply = await client.post(
            f"{server.url}/v1/audio/voices", data={"voice_name": name}, files={"voice_file": data}
        )
        if reply.status_code == 201:
            made.append(time.monotonic() - begun)
            await client.delete(f"{server.url}/v1/audio/voices/{name}")
        else:
            await asyncio.sleep(0.5)


async def measure(server: Server, given: argparse.Namespace) -> dict[str, Any]:
    """Phases in turn; figures of all without cloning, and of all with it."""
    heard, made, data = {False: Heard(), True: Heard()}, list[float](), clip(given.clip_seconds)
    async with httpx.AsyncClient(timeout=300) as client:
        await listen(client, server, given.text, time.monotonic() + 0.1, Heard())  # nobody is cold
        for number in range(2 * given.rounds):
            is_cloning, until = bool(number % 2), time.monotonic() + given.seconds
            phase = heard[is_cloning]
            work = [listen(client, server, given.text, until, phase) for _ in range(given.streams)]
            if is_cloning:
                work += [upload(client, server, data, until, made) for _ in range(given.uploads)]
            await asyncio.gather(*work)
    plain, beside = (heard[is_cloning].figures() for is_cloning in (False, True))
    added_ms = beside["gap_max_ms"] - plain["gap_max_ms"]
    is_same = heard[True].sums == heard[False].sums
    is_ok = is_same and bool(made) and added_ms <= given.allowed_ms
    return {
        "without": plain, "with": beside, "added_max_ms": round(added_ms, 1), "same_bytes": is_same,
        "voices": len(made), "voice_s": round(statistics.median(made or [0.0]), 1), "ok": is_ok,
    }  # fmt: skip


def arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, type=Path, help="a folder of its files")
    parser.add_argument("--text", default=TEXT)
    parser.add_argument("--streams", type=int, default=1, help="live streams beside each other")
    parser.add_argument("--uploads", type=int, default=1, help="recordings at once")
    parser.add_argument("--clip-seconds", type=float, default=299.0)
    parser.add_argument("--seconds", type=float, default=20.0, help="of a phase")
    parser.add_argument("--rounds", type=int, default=3, help="phases of each kind")
    parser.add_argument("--allowed-ms", type=float, default=100.0)
    return parser


def main() -> None:
    given = arguments().parse_args()
    with (
        tempfile.TemporaryDirectory() as home,
        serving(given.model, Path(home), {}, "--log-level", "warning") as server,
    ):
        found = asyncio.run(measure(server, given))
    print(json.dumps({"what": "cloning", **found}), flush=True)
    sys.exit(0 if found["ok"] else 1)


if __name__ == "__main__":
    main()
