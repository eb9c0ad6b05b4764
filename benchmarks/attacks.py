"""One bad client beside four listeners: thirty-five attacks on a real server.

    python benchmarks/attacks.py                          all of them, about ten minutes
    python benchmarks/attacks.py closing_quotes long_url  some of them
    python benchmarks/attacks.py --source OLD/src         the same on another version of the code

Four listeners play a text as it comes; the attack runs in a process of its own; meanwhile new
requests are made. An attack is withstood if the four heard no gap and every byte is what it is
without an attack, every new request was answered, memory grew by a bounded amount, no answer was
5xx but 503, and the worker is still the same. Where four are too many for the machine even without
an attack, the longest gap may be two seconds longer than then. Prints a table and a line of JSON;
exit code 1 if an attack was not withstood.
"""

from __future__ import annotations

import argparse
import asyncio
import datetime
import hashlib
import json
import os
import platform
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

import nightingale

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.attackers import ATTACKS, KEY, KEYED, Target
from tests.server.running import Server, serving

MODEL = Path(nightingale.__file__).parent / "fledgling"
VICTIM_KEY = "victim-key"
N_LISTENERS = 4
TEXT = "This is number one. Here comes two. Now it is three. Then we have four. The last is five."
PAUSES = {"sentence_pause_ms": 3000}  # so that four at once are well below real time on two cores
BYTES_PER_S = 48_000  # pcm
NOTICED_S = 0.1
MAX_GROWTH_MB = 200.0
# Uploads start the cloning process: a copy of the model, and at most a gigabyte for a recording.
UPLOADS, MAX_UPLOAD_GROWTH_MB = ("long_recordings", "audio_bombs", "multipart_garbage"), 1500.0
MAX_ANSWER_S = 10.0
SHOWN = (
    "wrong",
    "gaps",
    "longest_gap_s",
    "live_max_ms",
    "speech_max_ms",
    "growth_mb",
    "worker",
    "failures",
)
_AHEAD_S = 1.0  # of sound that a listener takes before it is played
# And the kernel 2.7 s for it. With much less than one of the server's chunks the receive window
# stays closed until a probe of the sender, half a second later: a gap that no server makes.
_RECEIVE_BUFFER = 2**17


@dataclass(slots=True)
class Listening:
    """What one listener heard."""

    sha256: str = ""
    gaps_s: list[float] = field(default_factory=list)
    failure: str = ""


@dataclass(slots=True)
class Probing:
    """How new requests were answered."""

    live_s: list[float] = field(default_factory=list)
    speech_s: list[float] = field(default_factory=list)
    failures: Counter[str] = field(default_factory=Counter)


def headers(key: str | None) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"} if key else {}


async def listen(server: Server, key: str | None, seed: int, begun: asyncio.Event) -> Listening:
    """Plays as it comes, with a small buffer: what the server does not send in time is a gap."""
    heard, digest, dry_at = Listening(), hashlib.sha256(), 0.0
    buffer = (socket.SOL_SOCKET, socket.SO_RCVBUF, _RECEIVE_BUFFER)
    small = httpx.AsyncHTTPTransport(socket_options=[buffer])
    client = httpx.AsyncClient(transport=small, timeout=60, headers=headers(key))
    body, url = server.body(TEXT, seed=seed, **PAUSES), f"{server.url}/v1/audio/speech"
    try:
        async with client, client.stream("POST", url, json=body) as reply:
            reply.raise_for_status()
            async for piece in reply.aiter_raw():
                now = time.monotonic()
                begun.set()
                digest.update(piece)
                if dry_at and now - dry_at > NOTICED_S:
                    heard.gaps_s.append(round(now - dry_at, 2))
                dry_at = max(now, dry_at) + len(piece) / BYTES_PER_S
                await asyncio.sleep(dry_at - _AHEAD_S - time.monotonic())
    except httpx.HTTPError as error:
        heard.failure = type(error).__name__
    heard.sha256 = digest.hexdigest()
    begun.set()
    return heard


async def probe(server: Server, key: str | None, found: Probing) -> None:
    """New requests, until it is cancelled."""

    async def ask(times: list[float], method: str, path: str, body: dict[str, Any] | None) -> None:
        begun = time.monotonic()
        try:
            reply = await client.request(method, server.url + path, json=body)
            if reply.status_code != 200:
                found.failures[f"{path} {reply.status_code}"] += 1
            times.append(time.monotonic() - begun)
        except httpx.HTTPError as error:
            found.failures[f"{path} {type(error).__name__}"] += 1

    async def live() -> None:
        while True:
            await ask(found.live_s, "GET", "/health/live", None)
            await asyncio.sleep(0.2)

    limits = httpx.Limits(max_keepalive_connections=0)
    async with httpx.AsyncClient(timeout=30, limits=limits, headers=headers(key)) as client:
        looking = asyncio.create_task(live())
        try:
            while True:
                body = server.body("A new request.", seed=77)
                await ask(found.speech_s, "POST", "/v1/audio/speech", body)
                await asyncio.sleep(1)
        finally:
            looking.cancel()


def memory_mb(server: Server) -> float:
    """Of the front and all processes below it."""
    listed = subprocess.run(
        ["ps", "-o", "rss=", "--pid", str(server.process.pid), "--ppid", str(server.process.pid)],
        capture_output=True, text=True, check=False,
    ).stdout  # fmt: skip
    return sum(map(int, listed.split())) / 1024


async def peak_mb(server: Server, peaks: list[float]) -> None:
    while True:
        peaks.append(await asyncio.to_thread(memory_mb, server))
        await asyncio.sleep(0.25)


async def one(
    server: Server, name: str, seconds: float, key: str | None, expected: list[str],
    usual_gap_s: float = 0.0,
) -> dict[str, Any]:  # fmt: skip
    """One attack beside four listeners, who had such a gap without it."""
    found, worker, peaks = Probing(), server.worker(), [memory_mb(server)]
    begun = [asyncio.Event() for _ in range(N_LISTENERS)]
    listening = [
        asyncio.create_task(listen(server, key, seed, begun[seed])) for seed in range(N_LISTENERS)
    ]
    await asyncio.gather(*(event.wait() for event in begun))
    beside = [asyncio.create_task(probe(server, key, found)),
              asyncio.create_task(peak_mb(server, peaks))]  # fmt: skip
    statuses = await run_attacker(server, name, seconds)
    heard = await asyncio.gather(*listening)
    for task in beside:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
    wrong = sum(each.sha256 != sha256 for each, sha256 in zip(heard, expected, strict=True))
    gaps_s = [gap for each in heard for gap in each.gaps_s]
    failures = [each.failure for each in heard if each.failure]
    faults = {status: n for status, n in statuses.items() if status >= "500" and status != "503"}
    growth_mb = max(peaks) - peaks[0]
    max_growth_mb = MAX_UPLOAD_GROWTH_MB if name in UPLOADS else MAX_GROWTH_MB
    slowest_s = max([*found.speech_s, 0.0])
    is_worker_same = server.worker() == worker
    ok = (
        not (wrong or failures or faults or found.failures)
        and max([*gaps_s, 0.0]) <= (usual_gap_s + 2 if usual_gap_s else 0)
        and slowest_s < MAX_ANSWER_S and growth_mb < max_growth_mb and is_worker_same
    )  # fmt: skip
    return {
        "attack": name, "ok": ok, "wrong": wrong, "gaps": len(gaps_s),
        "longest_gap_s": max([*gaps_s, 0.0]), "failures": failures + sorted(found.failures),
        "live_max_ms": round(1e3 * max([*found.live_s, 0.0])),
        "speech_p50_ms": round(1e3 * statistics.median([*found.speech_s, 0.0])),
        "speech_max_ms": round(1e3 * slowest_s),
        "growth_mb": round(growth_mb, 1), "worker": "same" if is_worker_same else "restarted",
        "statuses": statuses,
    }  # fmt: skip


async def run_attacker(server: Server, name: str, seconds: float) -> dict[str, int]:
    """In a process of its own, so that it does not slow the listeners down."""
    if name == "none":
        await asyncio.sleep(seconds)
        return {}
    command = [sys.executable, __file__, "--attacker", name, server.url, str(server.wyoming_port),
               str(seconds), json.dumps(server.options)]  # fmt: skip
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    assert process.stdout is not None
    try:
        async with asyncio.timeout(seconds + 60):
            return dict(json.loads(await process.stdout.read() or b"{}"))
    except TimeoutError:
        process.kill()
        return {"attacker timed out": 1}


def attacker(name: str, url: str, wyoming_port: str, seconds: str, options: str) -> None:
    """What that process does."""
    os.nice(5)
    nobody: Any = None
    server = Server(url, nobody, nobody, nobody, json.loads(options), int(wyoming_port))
    statuses = asyncio.run(ATTACKS[name](Target(server, float(seconds), None)))
    print(json.dumps({str(status): n for status, n in Counter(statuses).items()}))


def keys_file(folder: Path) -> Path:
    file = folder / "keys.toml"
    limits = {"victim": "", "attacker": "max_characters = 1000000\n"}
    tables = [
        f'[{name}]\nsha256 = "{hashlib.sha256(f"{name}-key".encode()).hexdigest()}"\n{limit}'
        for name, limit in limits.items()
    ]
    assert (VICTIM_KEY, KEY) == ("victim-key", "attacker-key")
    file.write_text("\n".join(tables))
    return file


async def alone(server: Server, key: str | None) -> list[str]:
    """What the listeners hear when nobody else is there."""
    found = []
    async with httpx.AsyncClient(timeout=120, headers=headers(key)) as client:
        for seed in range(N_LISTENERS):
            body = server.body(TEXT, seed=seed, **PAUSES)
            reply = await client.post(f"{server.url}/v1/audio/speech", json=body)
            found.append(hashlib.sha256(reply.content).hexdigest())
    return found


def attempt(
    server: Server, names: list[str], seconds: float, key: str | None
) -> Iterator[dict[str, Any]]:
    """One attack after the other, as long as there is a server."""
    expected, usual_gap_s = asyncio.run(alone(server, key)), 0.0
    for name in names:
        try:
            row = asyncio.run(one(server, name, seconds, key, expected, usual_gap_s))
        except (OSError, httpx.HTTPError) as error:
            row = {"attack": name, "ok": False, "failures": [f"server: {type(error).__name__}"]}
        row["keys"] = key is not None
        if name == "none":
            usual_gap_s = row.get("longest_gap_s", 0.0)
        print(json.dumps(row), file=sys.stderr, flush=True)
        yield row
        if server.process.poll() is not None:
            return


def run(names: list[str], seconds: float, source: Path | None) -> list[dict[str, Any]]:
    """All on two servers, one that asks for keys and one that does not."""
    environ = {"PYTHONPATH": str(source)} if source else {}
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for key in (None, VICTIM_KEY):
            flags = [] if key is None else ["--keys", str(keys_file(Path(folder)))]
            left = [name for name in names if (name in KEYED) is (key is not None)]
            left = ["none", *left] if left else []
            while left:  # a server that was taken down is started again for those that are left
                home = Path(tempfile.mkdtemp(dir=folder))
                with (
                    suppress(AssertionError, subprocess.TimeoutExpired),
                    serving(MODEL, home, {}, *flags, **environ) as server,
                ):
                    for row in attempt(server, left, seconds, key):
                        rows.append(row)
                        left = left[1:]
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("attacks", nargs="*", help=f"of {', '.join(ATTACKS)}; all")
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--source", type=Path, help="src of another version of the code")
    given = parser.parse_args()
    if unknown := set(given.attacks) - set(ATTACKS):
        parser.error(f"unknown: {', '.join(sorted(unknown))}")
    rows = run(given.attacks or list(ATTACKS), given.seconds, given.source)
    for row in rows:
        found = [f"{name} {row[name]}" for name in SHOWN if name in row]
        print(f"{row['attack']:22} {'ok' if row['ok'] else 'FAILED':6}", ", ".join(found))
    n_failed = sum(not row["ok"] for row in rows)
    print(json.dumps({
        "proof": "attacks", "date": datetime.datetime.now(tz=datetime.UTC).date().isoformat(),
        "machine": f"{os.cpu_count()} cores, {platform.machine()}",
        "source": given.source.name if given.source else "this", "attacks": len(rows),
        "failed": n_failed, "ok": n_failed == 0, "rows": rows,
    }))  # fmt: skip
    return int(n_failed > 0)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--attacker"]:
        attacker(*sys.argv[2:])
    else:
        sys.exit(main())
