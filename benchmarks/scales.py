"""Memory, handles and threads of a server's two processes, weighed again and again."""

from __future__ import annotations

import asyncio
import statistics
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.server.running import Server

NAMES = (
    "front_mb",
    "front_handles",
    "front_threads",
    "worker_mb",
    "worker_handles",
    "worker_threads",
)


class Scales:
    """Weighs while it is open."""

    def __init__(self, server: Server, every_s: float = 10) -> None:
        self.server, self.every_s = server, every_s
        self.rows = list[tuple[float, ...]]()

    async def __aenter__(self) -> Scales:
        self._watching = asyncio.create_task(self._watch())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._watching.cancel()
        with suppress(asyncio.CancelledError):
            await self._watching

    async def _watch(self) -> None:
        begun = time.monotonic()
        while True:
            await asyncio.sleep(self.every_s)
            pids = self.server.process.pid, self.server.worker()
            if all(pids):
                facts = [value for pid in pids for value in _weigh(pid)]
                self.rows.append((time.monotonic() - begun, *facts))

    def facts(self) -> dict[str, Any]:
        """How much of each came an hour, from the first quarter on, and what is too much."""
        rows = self.rows[len(self.rows) // 4 :]
        if len(rows) < 3:
            return {"grown": ["too short to tell"]}
        x, *columns = zip(*rows, strict=True)
        slopes = {
            name: round(3600 * statistics.linear_regression(x, column).slope, 2)
            for name, column in zip(NAMES, columns, strict=True)
        }
        thirds = [rows[at * len(rows) // 3 : (at + 1) * len(rows) // 3] for at in range(3)]
        return {
            "per_hour": slopes,
            "last": rows[-1],
            "thirds_mb": [
                [round(statistics.median(row[at] for row in third), 1) for third in thirds]
                for at in (1, 4)
            ],
            "grown": [name for name, slope in slopes.items() if slope > _most(name)],
        }


def _most(name: str) -> int:
    return 100 if "mb" in name else 10


def _weigh(pid: int) -> tuple[float, int, int]:
    """MB, handles, threads. Memory of its own: pages of files come and go as the system likes."""
    process = Path(f"/proc/{pid}")
    facts = dict(line.split(":") for line in (process / "status").read_text().splitlines())
    count = [sum(1 for _ in (process / name).iterdir()) for name in ("fd", "task")]
    return int(facts["RssAnon"].split()[0]) * 1024 / 1e6, count[0], count[1]
