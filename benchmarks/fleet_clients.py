"""Clients of a fleet: what they ask for, how they retry, and how an answer is judged.

Knows nothing of Ray. Every answer is one of four: identical, another request's (cross-talk),
complete but too short (silent loss), or different. What fails is tried again as the documented
client does (examples/resume.py), from the byte that it has; every failure is counted by its name.
"""

from __future__ import annotations

import hashlib
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import httpx
import numpy as np

from examples.resume import FailedError, speak

WORDS = ("Yes.", "No.", "Now.", "Good.", "Thanks.")
N_VOICES, N_SEEDS = 8, 4
LONG, N_LONG, N_SHORT = "Thanks.", 24, 6  # tokens of a stream of several chunks, and of others
MAX_TRIES = 400
LOADS = (0, 3), (4, 7), (8, 15), (16, 31), (32, 63)  # requests at a replica


@dataclass(frozen=True, slots=True)
class Answer:
    """When and where one was had; times in seconds."""

    asked: float
    first: float
    last: float
    replica: str
    voice: str
    is_disturbed: bool  # by a failure


@dataclass(slots=True)
class Result:
    """What the clients saw."""

    n_done: int = 0
    n_identical: int = 0
    n_moved: int = 0
    n_resumed: int = 0  # answers that were continued from a byte on
    wrong: Counter[str] = field(default_factory=Counter)
    failures: Counter[str] = field(default_factory=Counter)
    answers: list[Answer] = field(default_factory=list)

    @property
    def n_unnamed(self) -> int:
        """Failures without a name."""
        return sum(n for name, n in self.failures.items() if name.endswith(" unnamed"))

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
    for number, (word, voice, nth) in enumerate(product(WORDS, range(N_VOICES), range(N_SEEDS))):
        name = f"{word}{voice}" + (f"/{nth}" if nth else "")
        found[name] = {
            "input": word, "voice": f"voice-{voice}", "response_format": "pcm",
            "seed": number,  # each its own: voices may be alike in so few tokens
            "max_tokens": N_LONG if word == LONG else N_SHORT,
        }  # fmt: skip
    return found


async def fetch(
    client: httpx.AsyncClient, url: str, body: dict[str, Any], result: Result
) -> bytes | None:
    """One answer, whatever it takes; None: it was never had."""
    begun, failures, first_s, replica = time.monotonic(), list[FailedError](), 0.0, ""

    def note(reply: httpx.Response) -> None:
        nonlocal first_s, replica
        first_s = first_s or time.monotonic()
        replica = reply.headers.get("x-replica", "")

    def count(failure: FailedError) -> None:
        failures.append(failure)
        result.failures[str(failure)] += 1

    try:
        speech = await speak(
            client, url, body, max_tries=MAX_TRIES, on_failure=count, on_piece=note
        )
    except FailedError:
        result.wrong["never had"] += 1
        return None
    result.n_resumed += speech.is_resumed
    result.n_moved += speech.is_moved
    result.answers.append(
        Answer(begun, first_s, time.monotonic(), replica, body["voice"], bool(failures))
    )
    return speech.data


def sticky(answers: list[Answer]) -> dict[str, Any]:
    """How often a replica had the voice (hit), and the first sound of hits and misses: of all, and
    by how many requests the replica had when the request came. Undisturbed answers alone."""
    seen, rows = set[tuple[str, str]](), list[tuple[bool, int, float]]()
    for answer in sorted(answers, key=lambda it: it.asked):
        place = answer.replica, answer.voice
        if not answer.is_disturbed:
            n_open = sum(
                other.replica == answer.replica and other.asked < answer.asked < other.last
                for other in answers
            )
            rows.append((place in seen, n_open, 1e3 * (answer.first - answer.asked)))
        seen.add(place)
    hits = [first for is_hit, _, first in rows if is_hit]
    misses = [first for is_hit, _, first in rows if not is_hit]
    by_load = {}
    for low, high in LOADS:
        for name, wanted in (("hit", True), ("miss", False)):
            found = [ms for is_hit, n, ms in rows if is_hit is wanted and low <= n <= high]
            by_load[f"{name}, {low} to {high} requests before it"] = spread(found)
    return {
        "hit_rate": round(len(hits) / max(1, len(rows)), 4),
        "first_sound_hit_ms": spread(hits), "first_sound_miss_ms": spread(misses),
        "open_before_hit": spread([float(n) for is_hit, n, _ in rows if is_hit]),
        "open_before_miss": spread([float(n) for is_hit, n, _ in rows if not is_hit]),
        "first_sound_ms_by_load": by_load,
    }  # fmt: skip


def spread(values: list[float]) -> dict[str, float]:
    if not values:
        return {"n": 0}
    p50, p95, p99 = np.percentile(values, (50, 95, 99))
    return {"n": len(values), "p50": round(p50, 2), "p95": round(p95, 2), "p99": round(p99, 2)}
