"""Signals in every state of a server: it exits within its limit, and every client is informed.

    python benchmarks/lifecycle.py --model FOLDER                     all states and signals
    python benchmarks/lifecycle.py --model FOLDER --state speaking    one of them
    python benchmarks/lifecycle.py --model FOLDER --broken            must fail: no drain

Each trial starts a server, brings a client of each protocol (HTTP, SSE, WebSocket, Wyoming) into a
state, sends the signal and looks at how each client ends. Prints a line of JSON for each.

    loading       the model is not loaded; clients wait for their first answer
    idle          connected, nothing asked for
    speaking      the first audio has come; SIGTERM comes near the end, which must be heard
    waiting       behind others, or for text, for longer than the drain: must get an error
    dead reader   a long text was asked for, and nothing is read any more
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.clients import CLIENTS, Client
from tests.server.running import Server, launched, wait_until_ready

STATES = ("loading", "idle", "speaking", "waiting", "dead reader")
SIGNALS = (signal.SIGTERM, signal.SIGKILL)
DRAIN_S = 3  # where it is reached
LONG_DRAIN_S = 60  # where it is not
LATE_S = 1.0  # beyond the drain limit, for an exit
SENTENCE = "The quick brown fox jumps over the lazy dog."

# How a client may end, for each signal and state. "end": its end mark; "error": an error message
# or status; "closing": informed of the shutdown, and closed with 1001; "cut": the connection was
# closed without an end mark, which no client takes for a whole answer.
ALLOWED: dict[tuple[signal.Signals, str], dict[str, set[str]]] = {
    (signal.SIGTERM, "loading"): {"*": {"cut"}},
    (signal.SIGTERM, "idle"): {"*": {"cut"}, "websocket": {"closing"}},
    (signal.SIGTERM, "speaking"): {"*": {"end"}},
    (signal.SIGTERM, "waiting"): {"*": {"error"}},
    (signal.SIGTERM, "dead reader"): {"*": {"cut", "error"}},
    **{(signal.SIGKILL, state): {"*": {"cut"}} for state in STATES},
}


@dataclass(frozen=True, slots=True)
class Trial:
    """What happened."""

    signal: str
    state: str
    ends: dict[str, str]  # by protocol
    exit_s: float
    worker_exit_s: float
    wrong: list[str]

    @property
    def report(self) -> dict[str, Any]:
        times = {"exit_s": round(self.exit_s, 2), "worker_exit_s": round(self.worker_exit_s, 2)}
        facts = {"signal": self.signal, "state": self.state, "ends": self.ends}
        return {**facts, **times, "wrong": self.wrong, "ok": not self.wrong}


async def trial(
    model: Path,
    home: Path,
    number: signal.Signals,
    state: str,
    *,
    late_s: float = LATE_S,
    environ: Mapping[str, str] | None = None,
) -> Trial:
    """One server, one signal, a client of each protocol."""
    drain_s = LONG_DRAIN_S if state == "speaking" else DRAIN_S
    flags = ["--drain", str(drain_s), "--max-factor", "0", "--log-level", "warning"]
    flags += ["--max-requests", "1" if state == "waiting" else "8"]
    with launched(model, home, {}, *flags, **(environ or {})) as server:
        if state != "loading":
            await asyncio.to_thread(wait_until_ready, server)
        clients: dict[str, Client] = {name: kind(server) for name, kind in CLIENTS.items()}
        n_sentences = 2 if number == signal.SIGTERM else 40  # one ends in time, one is cut for sure
        before = await _prepare(server, state, list(clients.values()), n_sentences)
        worker = server.worker()
        begun = time.monotonic()
        server.process.send_signal(number)
        endings = [asyncio.create_task(client.ending()) for client in clients.values()]
        code, exit_s = await _exited(server, begun)
        worker_exit_s = await _gone(worker, begun)
        ends = await asyncio.gather(*endings)
        for client in [*before, *clients.values()]:
            await client.close()
    found = dict(zip(clients, ends, strict=True))
    wrong = _judge(number, state, found)
    is_drained = number == signal.SIGTERM and state not in ("loading", "idle")
    limit_s = drain_s if is_drained else 0.0
    if exit_s > limit_s + late_s:
        wrong.append(f"exit after {exit_s:.2f} s, allowed are {limit_s + late_s:.2f} s")
    if worker_exit_s > limit_s + late_s + 2.0:
        wrong.append(f"the worker lived for {worker_exit_s:.2f} s")
    if code != (0 if number == signal.SIGTERM else -number):
        wrong.append(f"exit code {code}")
    return Trial(number.name, state, found, exit_s, worker_exit_s, wrong)


def _judge(number: signal.Signals, state: str, ends: dict[str, str]) -> list[str]:
    allowed = ALLOWED[number, state]
    return [
        f"{name}: {end}, allowed: {', '.join(sorted(allowed.get(name, allowed['*'])))}"
        for name, end in ends.items()
        if end not in allowed.get(name, allowed["*"])
    ]


async def _prepare(
    server: Server, state: str, clients: Sequence[Client], n_sentences: int
) -> list[Client]:
    """Bring the clients into a state; returns others that are needed for it."""
    if state == "loading":
        await _listening(server)
    others: list[Client] = []
    if state == "waiting":
        others.append(CLIENTS["http"](server))
        await others[0].connect()
        await others[0].ask(" ".join([SENTENCE] * 40))
        await others[0].first_audio()
    for client in clients:
        await client.connect(is_small=state == "dead reader")
        if state in ("loading", "speaking"):
            await client.ask(" ".join([SENTENCE] * n_sentences))
        elif state == "waiting":
            await client.ask(SENTENCE, is_open=True)
        elif state == "dead reader":
            await client.ask(" ".join([SENTENCE] * 40))
    if state in ("speaking", "dead reader"):
        await asyncio.gather(*(client.first_audio() for client in clients))
    if state not in ("loading", "speaking"):
        await asyncio.sleep(0.5)
    return others


async def _listening(server: Server) -> None:
    """Until the ports are open, which is long before the model is loaded."""
    until = time.monotonic() + 30
    for port in (int(server.url.rpartition(":")[2]), server.wyoming_port):
        while time.monotonic() < until:
            try:
                (await asyncio.open_connection("127.0.0.1", port))[1].close()
                break
            except OSError:
                await asyncio.sleep(0.02)


async def _exited(server: Server, begun: float) -> tuple[int, float]:
    code = await asyncio.to_thread(server.process.wait, LONG_DRAIN_S + 60)
    return code, time.monotonic() - begun


async def _gone(pid: int, begun: float) -> float:
    """When a process has ended; one that is not reaped by anybody counts as ended."""
    while pid and time.monotonic() - begun < LONG_DRAIN_S + 60:
        try:
            state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
        except OSError:
            break
        if state[0] == "Z":
            break
        await asyncio.sleep(0.02)
    return time.monotonic() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, type=Path, help="a folder of its files")
    parser.add_argument("--state", choices=STATES, action="append", help="default: all")
    parser.add_argument("--signal", choices=[number.name for number in SIGNALS], action="append")
    parser.add_argument("--broken", action="store_true", help="plant a server without a drain")
    given = parser.parse_args()
    faults = (
        {"PYTHONPATH": with_python_path(Path(__file__).parent / "no_drain")} if given.broken else {}
    )
    is_ok = True
    for number in SIGNALS:
        for state in given.state or STATES:
            if given.signal and number.name not in given.signal:
                continue
            with tempfile.TemporaryDirectory() as home:
                work = trial(given.model, Path(home), number, state, environ=faults)
                done = asyncio.run(work)
            print(json.dumps(done.report), flush=True)
            is_ok = is_ok and not done.wrong
    sys.exit(0 if is_ok else 1)


def with_python_path(folder: Path) -> str:
    return os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])


if __name__ == "__main__":
    main()
