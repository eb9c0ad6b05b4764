"""Threads that wait: spinning on free processors, asleep while other processes want them."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest
import torch

from nightingale.nn import contention
from nightingale.nn.contention import ContentionMonitor, CpuTimes, cpu_times, processors_of_others

needs_openmp = pytest.mark.skipif(
    cpu_times() is None or not contention.loaded_openmp(), reason="no /proc/stat or no GNU OpenMP"
)


def test_cpu_times_counts_the_allowed_processors_without_idle_and_waiting(tmp_path: Path) -> None:
    stat = tmp_path / "stat"
    stat.write_text(
        "cpu  999 999 999 999 999 999 999 999 0 0\n"
        "cpu0 100 10 40 5000 700 20 30 200 100 10\n"
        "cpu1 300 0 0 5000 0 0 0 0 0 0\n"
        "cpu2 900 0 0 5000 0 0 0 0 0 0\n"
        "intr 12345 0 0\n"
    )
    with mock.patch.object(os, "sched_getaffinity", return_value={0, 1}):
        times = cpu_times(stat)
    assert times is not None
    assert times.busy == (100 + 10 + 40 + 20 + 30 + 200 + 300) / os.sysconf("SC_CLK_TCK")


def test_no_proc_stat_no_times(tmp_path: Path) -> None:
    assert cpu_times(tmp_path / "stat") is None


@pytest.mark.parametrize(("busy", "own", "others"), [(3.0, 1.0, 1.0), (2.0, 2.0, 0), (1.9, 2.0, 0)])
def test_processors_of_others(busy: float, own: float, others: float) -> None:
    before = CpuTimes(10.0, 100.0, 50.0)
    assert processors_of_others(before, CpuTimes(12.0, 100 + busy, 50 + own)) == others


@contextmanager
def watched(others: float) -> Iterator[ContentionMonitor]:
    """A monitor on a machine of two processors of which other processes take so many."""
    monitor = ContentionMonitor()
    started = time.monotonic()

    def times() -> CpuTimes:
        now = time.monotonic()
        return CpuTimes(now, (now - started) * others, 0.0)

    monitor._last = CpuTimes(started - 1, -others, 0.0)
    with (
        mock.patch.object(contention, "cpu_times", times),
        mock.patch.object(contention, "_n_processors", return_value=2),
        mock.patch.object(torch, "get_num_threads", return_value=2),
        mock.patch.object(contention, "INTERVAL", 0.01),
        mock.patch.object(contention, "IDLE", 0.05),
    ):
        yield monitor
        wait_for(lambda: not monitor._is_looking)


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


@needs_openmp
def test_a_team_sleeps_beside_a_busy_process_and_ends_with_the_work() -> None:
    with watched(others=1.0) as monitor, monitor.computing():
        wait_for(lambda: monitor.is_contended)
    assert not monitor.is_contended
    assert not any("openmp" in thread.name for thread in threading.enumerate())


@needs_openmp
@pytest.mark.parametrize("others", [0.0, 0.4])
def test_threads_spin_on_free_processors(others: float) -> None:
    with watched(others) as monitor, monitor.computing():
        looks = monitor._last
        wait_for(lambda: monitor._last is not looks)
        time.sleep(0.05)
        assert not monitor.is_contended


@pytest.mark.slow
@needs_openmp
def test_work_that_begins_while_the_monitor_ends_is_watched() -> None:
    with watched(others=1.0) as monitor:
        for _ in range(20):
            with monitor.computing():
                wait_for(lambda: monitor.is_contended)
            time.sleep(0.055)


def test_one_thread_needs_no_monitor() -> None:
    monitor = ContentionMonitor()
    with mock.patch.object(torch, "get_num_threads", return_value=1), monitor.computing():
        assert not monitor._is_looking


BARRIERS = """
import sys, time, torch
from nightingale.nn.contention import MONITOR, SleepingTeam, loaded_openmp
torch.set_num_threads(2)
x = torch.ones(1 << 16)
x += 1
team = SleepingTeam(loaded_openmp(), 3) if sys.argv[1] == "asleep" else None
begun = time.process_time()
for _ in range(40):
    x += 1
    time.sleep(0.005)
print(time.process_time() - begun)
"""


@needs_openmp
@pytest.mark.slow
def test_with_a_sleeping_team_waiting_threads_take_no_processor_time() -> None:
    """The fact that all of this rests on: libgomp spins less when threads outnumber processors."""
    environ = {name: value for name, value in os.environ.items() if "OMP_" not in name}

    def seconds(how: str) -> float:
        command = ["taskset", "--cpu-list", "0,1", sys.executable, "-c", BARRIERS, how]
        done = subprocess.run(command, env=environ, capture_output=True, text=True, check=True)
        return float(done.stdout)

    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("two threads on one processor never spin")
    assert seconds("asleep") < 0.5 * seconds("spinning")
