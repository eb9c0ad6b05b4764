"""How OpenMP's threads wait: spinning while the processors are free, asleep while others want them.

GNU OpenMP lets a thread that waits at a barrier spin 300,000 times before it sleeps. That is
fastest on free processors; beside one busy process, every barrier waits for a thread that is not
running, and speech takes ten times as long. Where there are more OpenMP threads than processors it
spins only 100 times (libgomp's manual, GOMP_SPINCOUNT). So while other processes compete, a second
team of threads is kept, which sleeps; it ends when they do. No bit of the sound depends on it.

Only Linux tells what other processes take, and only there torch computes with GNU OpenMP.
"""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import torch

from nightingale.core import CPU

INTERVAL = 0.2  # seconds between two looks; processor time is counted in hundredths
HOLD = 2.0  # seconds after the last competition until threads spin again
IDLE = 1.0  # seconds without work until nobody looks any more
TOLERANCE = 0.5  # processors that others may take before it is competition


@dataclass(frozen=True)
class CpuTimes:
    """Seconds on the processors that this process may use."""

    at: float
    busy: float  # all processes, and the hypervisor's other guests
    own: float


def cpu_times(stat: Path = Path("/proc/stat")) -> CpuTimes | None:
    """None where the system does not tell."""
    try:
        allowed = {f"{CPU}{n}" for n in os.sched_getaffinity(0)}
        lines = [line.split() for line in stat.read_text().splitlines()]
        tick = os.sysconf("SC_CLK_TCK")
    except (AttributeError, OSError, ValueError):
        return None
    # user, nice, system, idle, iowait, irq, softirq, steal; what follows is counted in `user`
    fields = [[int(n) for n in counts[:8]] for name, *counts in lines if name in allowed]
    busy = sum(sum(counts) - counts[3] - counts[4] for counts in fields)
    return CpuTimes(time.monotonic(), busy / tick, time.process_time())


def processors_of_others(before: CpuTimes, now: CpuTimes) -> float:
    """How many processors other processes kept busy."""
    busy = (now.busy - before.busy) - (now.own - before.own)
    return max(busy, 0.0) / max(now.at - before.at, 1e-3)


class SleepingTeam:
    """OpenMP threads that wait: with them there are more threads than processors."""

    def __init__(self, libraries: list[ctypes.CDLL], n_threads: int) -> None:
        self._released = threading.Event()
        started = threading.Event()

        def keep() -> None:
            for library in libraries:  # a parallel region in which each thread asks for its number
                library.GOMP_parallel(library.omp_get_thread_num, None, n_threads, 0)
            started.set()
            self._released.wait()

        self._thread = threading.Thread(target=keep, name="openmp-sleeping-team", daemon=True)
        self._thread.start()
        started.wait()

    def release(self) -> None:
        """Its threads end with the one that started them."""
        self._released.set()
        self._thread.join()


class ContentionMonitor:
    """Looks, while this process computes, whether others want the processors."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_looking = False
        self._n_computing = 0
        self._computed_at = 0.0
        self._n_threads = 1
        self._last = cpu_times()
        self._team: SleepingTeam | None = None

    @property
    def is_contended(self) -> bool:
        return self._team is not None

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Around what a thread of ours computes."""
        self._n_threads = torch.get_num_threads()
        with self._lock:
            self._n_computing += 1
            starts = not self._is_looking and self._n_threads > 1 and self._last is not None
            self._is_looking |= starts
        if starts:
            threading.Thread(target=self._look, name="contention-monitor", daemon=True).start()
        try:
            yield
        finally:
            with self._lock:
                self._n_computing -= 1
                self._computed_at = time.monotonic()

    def _look(self) -> None:
        libraries = loaded_openmp()
        contended_at = -HOLD
        while libraries:
            now = cpu_times()
            if now is None or self._last is None:
                break
            if now.at - self._last.at >= INTERVAL / 2:
                free = _n_processors() - processors_of_others(self._last, now)
                self._last = now
                contended_at = now.at if free < self._n_threads - TOLERANCE else contended_at
                self._sleep_at_barriers(libraries, wanted=now.at - contended_at < HOLD)
            with self._lock:
                if not self._n_computing and now.at - self._computed_at > IDLE:
                    self._sleep_at_barriers(libraries, wanted=False)
                    self._is_looking = False
                    return
            time.sleep(INTERVAL)

    def _sleep_at_barriers(self, libraries: list[ctypes.CDLL], *, wanted: bool) -> None:
        if wanted and self._team is None:
            n_threads = max(_n_processors() - self._n_threads, 0) + 2
            self._team = SleepingTeam(libraries, n_threads)
        elif not wanted and self._team is not None:
            self._team.release()
            self._team = None


def loaded_openmp() -> list[ctypes.CDLL]:
    """GNU OpenMP as torch and the kernels have it, usually one library for both."""
    try:
        mapped = Path("/proc/self/maps").read_text().splitlines()
    except OSError:
        return []
    files = {line.split()[-1] for line in mapped if "/libgomp" in line}
    return [ctypes.CDLL(file) for file in sorted(files)]


def _n_processors() -> int:
    return len(os.sched_getaffinity(0))


MONITOR = ContentionMonitor()
