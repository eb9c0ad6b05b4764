"""Clients of a fleet: what they ask for, how they retry, and how an answer is judged.

Knows nothing of Ray. Every answer is one of four: identical, another request's (cross-talk),
complete but too short (silent loss), or different. What fails is tried again as a client would,
from the byte that it has; every failure is counted by its name.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import httpx
import numpy as np

WORDS = ("Yes.", "No.", "Now.", "Good.", "Thanks.")
N_VOICES, N_SEEDS = 8, 4
LONG, N_LONG, N_SHORT = "Thanks.", 24, 6  # tokens of a stream of several chunks, and of others
MAX_TRIES = 400


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
                    after_ms = float(
                        reply.headers.get("retry-after-ms", 100 * 2 ** min(attempt, 4))
                    )
                    await asyncio.sleep(min(3.0, after_ms / 1e3) * random.uniform(0.7, 1.3))
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


def spread(values: list[float]) -> dict[str, float]:
    if not values:
        return {"n": 0}
    p50, p95, p99 = np.percentile(values, (50, 95, 99))
    return {"n": len(values), "p50": round(p50, 2), "p95": round(p95, 2), "p99": round(p99, 2)}
