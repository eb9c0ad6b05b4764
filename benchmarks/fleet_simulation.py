"""A fleet on paper: a discrete-event simulation, and what it says of 1,000 to 1,000,000 callers.

    python -m benchmarks.fleet_simulation --figures docs/pictures      # sizes, failures, pictures
    scripts/fleet python -m benchmarks.fleet_load --replicas 1 2 4     # real runs to compare with
    python -m benchmarks.fleet_simulation --validate benchmarks/results/fleet_load-....jsonl

A replica computes requests in the order of their deadlines, which for short ones is the order of
arrival; `speed(n)` requests' worth of sound at once. Requests go to the replica of their voice by
consistent hashing with bounded load, as HAProxy does it. Nothing here imports the engine: service
times come from measurements of it, and every assumption is a field below.
"""

from __future__ import annotations

import argparse
import bisect
import hashlib
import heapq
import json
import math
import random
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

BOUND = 1.25  # of the mean load, as in fleet/ingress.py
_POINTS = 40  # of each replica on the hash ring


@dataclass(frozen=True, slots=True)
class Service:
    """What a request costs a replica."""

    first_s: float  # work until the first sound, alone, with a warm voice
    rest_s: float  # work for the rest of it
    audio_s: float
    cold_s: float = 0.0  # more, where the voice's prompt is not there
    overhead_s: float = 0.0  # on the way, at no cost to the replica


@dataclass(frozen=True, slots=True)
class Fleet:
    """A cell: replicas behind one ingress."""

    n_replicas: int
    n_slots: int = 1  # requests beside each other at full speed: what batching gives
    max_open: int = 24  # per replica: more are refused
    n_cores: float = math.inf  # that all replicas share
    cores_per_replica: float = 1.0  # that one keeps busy while it works, with what serves it
    slowdown: float = 1.0  # of each, where several work: cores share caches and memory
    n_voices_kept: int = 64  # per replica


@dataclass(slots=True, eq=False)
class Job:
    """A request under way in a replica."""

    arrived: float
    left_first_s: float
    left_rest_s: float
    voice: int
    is_heard: bool = False  # its first sound has come

    @property
    def left_s(self) -> float:
        return self.left_rest_s if self.is_heard else self.left_first_s


@dataclass(slots=True, eq=False)
class Replica:
    """A queue with `n_slots` servers in it."""

    jobs: list[Job] = field(default_factory=list)
    voices: OrderedDict[int, None] = field(default_factory=OrderedDict)
    is_up: bool = True
    at: float = 0.0  # when its jobs stood as they are written here
    version: int = 0  # of its next event: older ones are void


@dataclass(slots=True)
class Outcome:
    """What callers saw."""

    first_s: list[float] = field(default_factory=list)
    n_asked: int = 0
    n_refused: int = 0
    n_done: int = 0
    n_cold: int = 0
    n_moved: int = 0
    until_s: float = 0.0

    @property
    def goodput(self) -> float:
        return self.n_done / self.until_s if self.until_s else 0.0

    def percentile(self, q: float) -> float:
        values = sorted(self.first_s)
        return values[min(len(values) - 1, int(q * len(values)))] if values else math.nan


class Ring:
    """Consistent hashing with bounded load."""

    def __init__(self, n_replicas: int, homes: Sequence[int] = ()) -> None:
        """`homes`: replicas of the first voices, where the real ring is known."""
        self._homes = homes
        points = [
            (int.from_bytes(hashlib.sha256(f"{it}/{n}".encode()).digest()[:8]), it)
            for it in range(n_replicas)
            for n in range(_POINTS)
        ]
        self._points = sorted(points)
        self._keys = [point for point, _ in self._points]
        self._start: dict[int, int] = {}

    def place(self, voice: int, loads: Sequence[int], is_up: Sequence[bool]) -> int | None:
        n_up = sum(is_up)
        if not n_up:
            return None
        most = math.ceil(BOUND * (sum(loads) + 1) / n_up)
        if voice not in self._start:
            digest = hashlib.sha256(f"voice {voice}".encode()).digest()[:8]
            self._start[voice] = bisect.bisect(self._keys, int.from_bytes(digest))
        if voice < len(self._homes):
            home = self._homes[voice]
            if is_up[home] and loads[home] < most:
                return home
        start = self._start[voice]
        for n in range(len(self._points)):
            chosen = self._points[(start + n) % len(self._points)][1]
            if is_up[chosen] and loads[chosen] < most:
                return chosen
        return None


class Simulation:
    """Arrivals in, first sounds out. Work is shared by the first `n_slots` jobs of a replica."""

    def __init__(
        self,
        fleet: Fleet,
        draw: Callable[[], Service],
        voice: Callable[[], int],
        homes: Sequence[int] = (),
    ) -> None:
        self.fleet, self._draw, self._voice = fleet, draw, voice
        self.replicas = [Replica() for _ in range(fleet.n_replicas)]
        self._ring, self._now, self._rate = Ring(fleet.n_replicas, homes), 0.0, 1.0
        self.outcome = Outcome()
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._n_events = 0

    def run(
        self, arrivals: Iterable[float], events: Iterable[tuple[float, Callable[[], None]]] = ()
    ) -> Outcome:
        """`events`: what happens to the fleet, and when."""
        for at in arrivals:
            self._at(at, self._arrive)
        for at, act in events:
            self._at(at, act)
        while self._queue:
            at, _, act = heapq.heappop(self._queue)
            self._now = at
            act()
        self.outcome.until_s = max((it.at for it in self.replicas), default=0.0)
        return self.outcome

    def fail(self, numbers: Iterable[int]) -> None:
        """Replicas are lost; their jobs begin again elsewhere, from their token logs."""
        for number in numbers:
            lost = self.replicas[number]
            self._advance(lost)
            jobs, lost.jobs, lost.is_up = lost.jobs, [], False
            for job in jobs:
                self.outcome.n_moved += 1
                self._place(job, 0.0)
        self._changed()

    def revive(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            self.replicas[number] = Replica(at=self._now)

    def _at(self, at: float, act: Callable[[], None]) -> None:
        self._n_events += 1
        heapq.heappush(self._queue, (at, self._n_events, act))

    def _arrive(self) -> None:
        service = self._draw()
        self.outcome.n_asked += 1
        arrived = self._now - service.overhead_s
        job = Job(arrived, service.first_s, service.rest_s, self._voice())
        number = self._place(job, service.cold_s)
        if number is not None:
            self._changed(number)

    def _place(self, job: Job, cold_s: float) -> int | None:
        loads = [len(it.jobs) for it in self.replicas]
        number = self._ring.place(job.voice, loads, [it.is_up for it in self.replicas])
        if number is None or loads[number] >= self.fleet.max_open:
            self.outcome.n_refused += 1
            return None
        chosen = self.replicas[number]
        if job.voice in chosen.voices:
            chosen.voices.move_to_end(job.voice)
        else:
            self.outcome.n_cold += 1
            job.left_first_s += cold_s
            chosen.voices[job.voice] = None
            while len(chosen.voices) > self.fleet.n_voices_kept:
                chosen.voices.popitem(last=False)
        self._advance(chosen)
        chosen.jobs.append(job)
        return number

    def _changed(self, number: int | None = None) -> None:
        """Jobs came or went: of one replica, or of any. Where cores are shared, all are slowed."""
        if not math.isinf(self.fleet.n_cores):
            for it in self.replicas:
                self._advance(it)
            n_busy = sum(bool(it.jobs) for it in self.replicas)
            wanted = n_busy * self.fleet.cores_per_replica
            share = min(1.0, self.fleet.n_cores / wanted) if wanted else 1.0
            self._rate = share / (self.fleet.slowdown if n_busy > 1 else 1.0)
            number = None
        some = self.replicas if number is None else [self.replicas[number]]
        for it in some:
            self._schedule(it)

    def _schedule(self, replica: Replica) -> None:
        replica.version += 1
        running = replica.jobs[: self.fleet.n_slots]
        if running:
            left_s, version = min(job.left_s for job in running), replica.version
            self._at(replica.at + left_s / self._rate, lambda: self._finish(replica, version))

    def _finish(self, replica: Replica, version: int) -> None:
        if version == replica.version and replica.is_up:
            self._advance(replica)
            self._changed(None if replica not in self.replicas else self.replicas.index(replica))

    def _advance(self, replica: Replica) -> None:
        spent, replica.at = (self._now - replica.at) * self._rate, self._now
        for job in replica.jobs[: self.fleet.n_slots]:
            if job.is_heard:
                job.left_rest_s -= spent
            else:
                job.left_first_s -= spent
            if not job.is_heard and job.left_first_s <= 1e-9:
                job.is_heard = True
                self.outcome.first_s.append(self._now - job.arrived)
        n_before = len(replica.jobs)
        replica.jobs = [job for job in replica.jobs if not job.is_heard or job.left_rest_s > 1e-9]
        self.outcome.n_done += n_before - len(replica.jobs)


def poisson(rate: float, seconds: float, rng: random.Random, start: float = 0.0) -> list[float]:
    times, at = [], start
    while (at := at + rng.expovariate(rate)) < start + seconds:
        times.append(at)
    return times


def zipf(n: int, rng: random.Random, exponent: float = 1.0) -> Callable[[], int]:
    """A voice by its popularity, of a catalogue of n: by inversion of the continuous law."""
    if exponent == 1.0:
        return lambda: int(n ** rng.random())
    power = 1 - exponent
    return lambda: int((rng.random() * (n**power - 1) + 1) ** (1 / power))


# ---- Validation against runs of this code -------------------------------------------------------


def validate(file: Path) -> list[dict[str, Any]]:
    """Predicted beside measured, for each run: first sound and goodput."""
    return [
        _compared(run, one)
        for run in map(json.loads, file.read_text().splitlines())
        for one in run["runs"]
    ]


def _compared(run: dict[str, Any], one: dict[str, Any]) -> dict[str, Any]:
    """Replicas share the cores that Ray's idle processes leave, and what serves a request beside
    its replica (client, ingress, front) is computed on the same cores."""
    rng, voices, fit = random.Random(2), iter(one["voices"]), one["fit"]
    n_cores = run["cores"] - fit["idle_cores"]
    fleet = Fleet(
        one["replicas"],
        n_cores=n_cores,
        cores_per_replica=fit["busy_cores"],
        slowdown=fit["slowdown"],
        max_open=10**6,
    )
    simulation = Simulation(
        fleet,
        lambda: Service(
            rng.choice(fit["first_s"]), fit["rest_s"], 0.2, overhead_s=fit["overhead_s"]
        ),
        lambda: next(voices),
        one["homes"],
    )
    outcome = simulation.run(one["arrivals_s"])
    seen = {"p50": one["p50_s"], "p95": one["p95_s"], "goodput": one["goodput"]}
    said = {"p50": outcome.percentile(0.5), "p95": outcome.percentile(0.95)}
    said = {name: round(value, 4) for name, value in (said | {"goodput": outcome.goodput}).items()}
    off = {name: round(said[name] / seen[name] - 1, 3) for name in seen}
    row = {name: one[name] for name in ("replicas", "n", "other_cores", "drift")}
    row = {"load": run["load"], **row, "measured": seen}
    return {**row, "predicted": said, "off": off}


# ---- Sizes --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Assumptions:
    """Everything that the sizes rest on; docs/scale.md prints this table."""

    requests_per_caller_s: float = 1 / 12  # a caller hears an answer every 12 s
    audio_s: float = 4.0  # of an answer
    gpu_streams: int = 24  # live streams that one GPU (24 GB, 2023) keeps gapless
    first_s: float = 0.20  # to the first sound, alone, warm voice, on that GPU
    cold_s: float = 0.08  # more for a voice whose prompt is not there
    overhead_s: float = 0.004  # ingress, to the first sound
    target_load: float = 0.60  # of a GPU's streams, in the plan
    gpu_price: float = 0.80  # dollars per hour
    gpus_per_node: int = 8
    n_zones: int = 3
    warm_start_s: float = 20.0  # a replica on a node that is there
    node_start_s: float = 180.0  # a node that is not
    replica_requests_s: float = 6.0  # gpu_streams / audio_s: answers per second at full load
    cell: int = 48  # replicas that are simulated; more are cells like it


def size(n_callers: int, a: Assumptions) -> dict[str, Any]:
    """GPUs by offered load, and cells."""
    rate = n_callers * a.requests_per_caller_s
    streams = rate * a.audio_s
    n_gpus = math.ceil(streams / (a.gpu_streams * a.target_load))
    hours = streams  # hours of speech in an hour
    return {
        "callers": n_callers, "requests_s": round(rate, 1), "live_streams": round(streams),
        "gpus": n_gpus, "nodes": math.ceil(n_gpus / a.gpus_per_node),
        "cells": math.ceil(n_gpus / a.cell),
        "dollars_per_speech_hour": round(n_gpus * a.gpu_price / hours, 4),
    }  # fmt: skip


def cell_of(n_gpus: int, a: Assumptions) -> tuple[int, float]:
    """Replicas that are simulated, and their part of the load."""
    n = min(n_gpus, a.cell)
    return n, n / n_gpus


def scenario(
    name: str, n_callers: int, a: Assumptions, seconds: float = 45.0, seed: int = 1
) -> dict[str, Any]:
    """One cell in one situation. `first_p95` is of all who were not refused."""
    rng, plan = random.Random(seed), size(n_callers, a)
    n, part = cell_of(plan["gpus"], a)
    rate = plan["requests_s"] * part
    n_voices = 1_000_000 if name == "cold catalogue" else 1_000
    # A GPU gives each of its streams the same share: `gpu_streams` servers, each at real time.
    rest_s = a.audio_s - a.first_s
    fleet = Fleet(n, a.gpu_streams, max_open=2 * a.gpu_streams)
    sim = Simulation(
        fleet,
        lambda: Service(
            a.first_s, rest_s * rng.uniform(0.5, 1.5), a.audio_s, a.cold_s, a.overhead_s
        ),
        zipf(n_voices, rng),
    )
    arrivals = poisson(rate, seconds, rng)
    events: list[tuple[float, Callable[[], None]]] = []
    third = seconds / 3
    if name == "node lost":
        gone = list(range(min(a.gpus_per_node, n - 1)))
        events = [
            (third, lambda: sim.fail(gone)),
            (third + a.warm_start_s, lambda: sim.revive(gone)),
        ]
    elif name == "zone lost":
        gone = list(range(max(1, n // a.n_zones))) if n > 1 else []
        events = [(third, lambda: sim.fail(gone))]
    elif name == "flash crowd":
        arrivals = sorted([*arrivals, *poisson(9 * rate, third, rng, third)])
    outcome = sim.run(arrivals, events)
    return {
        "scenario": name, "callers": n_callers, "replicas_simulated": n,
        "first_p50_ms": round(1e3 * outcome.percentile(0.5)),
        "first_p95_ms": round(1e3 * outcome.percentile(0.95)),
        "refused": round(outcome.n_refused / max(1, outcome.n_asked), 4),
        "cold": round(outcome.n_cold / max(1, outcome.n_asked), 4), "moved": outcome.n_moved,
    }  # fmt: skip


SCENARIOS = ("steady", "node lost", "zone lost", "flash crowd", "cold catalogue")
SIZES = (1_000, 100_000, 1_000_000)


def draw_figures(rows: list[dict[str, Any]], folder: Path) -> None:
    """Two small pictures: first sound by situation, and refusals by load."""
    import matplotlib  # noqa: PLC0415

    matplotlib.use("svg")
    matplotlib.rcParams["svg.hashsalt"] = "nightingale"
    from matplotlib import pyplot as plt  # noqa: PLC0415

    folder.mkdir(parents=True, exist_ok=True)
    figure, axes = plt.subplots(figsize=(7, 3.2))
    for number, n_callers in enumerate(SIZES):
        mine = [row for row in rows if row["callers"] == n_callers]
        xs = [n + 0.25 * (number - 1) for n in range(len(mine))]
        axes.bar(xs, [row["first_p95_ms"] for row in mine], 0.23, label=f"{n_callers:,} callers")
    axes.set_xticks(range(len(SCENARIOS)), SCENARIOS)
    axes.set_ylabel("first sound, p95 (ms)")
    axes.legend(frameon=False)
    _save(figure, folder / "scale-first-sound.svg")
    figure, axes = plt.subplots(figsize=(7, 3.2))
    base = Assumptions()
    loads = [0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95]
    found = [scenario("steady", 20_000, replace(base, target_load=load), 40.0) for load in loads]
    axes.plot(loads, [row["first_p95_ms"] for row in found], marker="o")
    axes.set_xlabel("live streams, as a share of what a GPU keeps gapless")
    axes.set_ylabel("first sound, p95 (ms)")
    axes.set_ylim(bottom=0)
    _save(figure, folder / "scale-load.svg")


def _save(figure: Any, file: Path) -> None:
    figure.tight_layout()
    figure.savefig(file, metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--validate", type=Path, help="result of benchmarks/fleet_load.py")
    parser.add_argument("--figures", type=Path, help="folder for pictures")
    given = parser.parse_args()
    if given.validate:
        for row in validate(given.validate):
            print(json.dumps(row))
        return
    assumptions, rows = Assumptions(), []
    for n_callers in SIZES:
        print(json.dumps(size(n_callers, assumptions)))
        for name in SCENARIOS:
            rows.append(scenario(name, n_callers, assumptions))
            print(json.dumps(rows[-1]))
    if given.figures:
        draw_figures(rows, given.figures)


if __name__ == "__main__":
    main()
