"""`kill -9` of the worker deep inside long streams: bytes identical, and how long it is silent.

    python benchmarks/serving.py long_kills --model FOLDER --kills 100 --longest 120
    python benchmarks/serving.py long_kills --model FOLDER --kills 1 --plant       must fail

A stream is killed several times, at random positions of its audio. The pause behind a kill is the
longest time without a byte; what it takes to start a worker is given beside it, for that depends
on the model and the disk, and the rest on how much is computed again.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import statistics
import sys
import time
from hashlib import sha256
from typing import TYPE_CHECKING, Any

import httpx

if TYPE_CHECKING:
    from tests.server.running import Server

_BYTES_PER_SECOND = 48_000
_FIRST_S, _APART_S = 5.0, 4.0
_WORDS_PER_SECOND = 3.0
_SUBJECTS = ("The old man", "A small bird", "The river", "My neighbour", "The night train")
_VERBS = ("carries", "finds", "leaves", "passes", "remembers", "follows")
_OBJECTS = ("the blue house", "seven stones", "a long road", "the open window", "an early song")


def long_text(seconds: float, seed: int) -> str:
    """Sentences that take about so long to say."""
    rng, sentences, n_words = random.Random(seed), list[str](), 0
    while n_words < seconds * _WORDS_PER_SECOND:
        parts = (rng.choice(part) for part in (_SUBJECTS, _VERBS, _OBJECTS))
        sentences.append(f"{' '.join(parts)} in the morning.")
        n_words += len(sentences[-1].split())
    return " ".join(sentences)


def positions(n: int, longest_s: float, rng: random.Random) -> list[list[float]]:
    """Seconds of audio at which to kill, for each stream, so far apart that each counts."""
    per_stream = max(1, int((longest_s - _FIRST_S) / (3 * _APART_S)))
    streams = []
    while n > 0:
        here: list[float] = []
        while len(here) < min(per_stream, n):
            at = rng.uniform(min(_FIRST_S, longest_s / 2), longest_s)
            if all(abs(at - other) > _APART_S for other in here):
                here.append(at)
        streams.append(sorted(here))
        n -= len(here)
    return streams


class Listener:
    """Reads one stream as fast as it comes, and kills the worker at given positions."""

    def __init__(self, server: Server, at_s: list[float]) -> None:
        self._server, self._at_s = server, list(at_s)
        self.pauses: list[tuple[float, float, float]] = []  # position, pause, start of the worker
        self.n_bytes, self._sum = 0, sha256()

    async def listen(self, client: httpx.AsyncClient, body: dict[str, Any]) -> str:
        """The sum of a whole answer."""
        last, killed_s, longest_s = time.monotonic(), 0.0, 0.0
        url = f"{self._server.url}/v1/audio/speech"
        async with client.stream("POST", url, json=body) as reply:
            if reply.status_code != 200:
                await reply.aread()
                raise httpx.HTTPStatusError(reply.text, request=reply.request, response=reply)
            async for piece in reply.aiter_raw():
                now = time.monotonic()
                longest_s, last = max(longest_s, now - last), now
                self.n_bytes += len(piece)
                self._sum.update(piece)
                position_s = self.n_bytes / _BYTES_PER_SECOND
                if self._at_s and position_s >= self._at_s[0]:
                    self._note(killed_s, longest_s)
                    killed_s, longest_s = self._at_s.pop(0), 0.0
                    os.kill(self._server.worker(), signal.SIGKILL)
                    last = time.monotonic()
            self._note(killed_s, longest_s)
        return self._sum.hexdigest()

    def _note(self, killed_s: float, pause_s: float) -> None:
        if killed_s:
            start_s = self._server.meter("worker_start_seconds")
            self.pauses.append((killed_s, pause_s, start_s))


async def long_kills(server: Server, given: argparse.Namespace) -> dict[str, Any]:
    """Each stream is the same as without kills."""
    text = long_text(1.3 * given.longest, given.seed)
    body = {"input": text, "seed": given.seed, "response_format": "pcm", "prebuffer": False}
    rng, pauses, n_wrong, errors = random.Random(given.seed), [], 0, list[str]()
    async with httpx.AsyncClient(timeout=600) as client:
        whole = Listener(server, [])
        expected = await whole.listen(client, body)
        longest_s = min(given.longest, 0.95 * whole.n_bytes / _BYTES_PER_SECOND)
        for at_s in positions(given.kills, longest_s, rng):
            listener = Listener(server, at_s)
            try:
                n_wrong += await listener.listen(client, body) != expected
            except httpx.HTTPError as error:
                errors.append(str(error) or type(error).__name__)
            pauses += listener.pauses
            print(f"{len(pauses)} kills, {n_wrong} wrong", file=sys.stderr, flush=True)
    beyond = sorted(max(0.0, pause_s - start_s) for _, pause_s, start_s in pauses)
    starts = [start_s for _, _, start_s in pauses]
    return {
        "kills": len(pauses), "wrong": n_wrong, "lost": errors,
        "audio_s": round(whole.n_bytes / _BYTES_PER_SECOND, 1),
        "first_s": round(min(at for at, _, _ in pauses), 1),
        "last_s": round(max(at for at, _, _ in pauses), 1),
        "pause_p50_s": round(statistics.median(pause_s for _, pause_s, _ in pauses), 2),
        "start_p50_s": round(statistics.median(starts), 2),
        "beyond_start_p50_s": round(statistics.median(beyond), 2),
        "beyond_start_p99_s": round(beyond[int(0.99 * len(beyond))], 2),
        "resumed": server.meter("resumed_total"),
        "ok": not n_wrong and not errors and len(pauses) == given.kills,
    }  # fmt: skip
