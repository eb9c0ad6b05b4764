"""What the server counts, for Prometheus."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from nightingale.server.breaker import BreakerState

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from nightingale.server.dispatch import Dispatcher
    from nightingale.server.utterance import Utterance

_FIRST_S = (0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10, 30)
_RTF = (0.05, 0.1, 0.2, 0.3, 0.5, 0.7, 0.85, 1, 1.25, 1.5, 2, 3, 5)


class Metrics:
    """One set for each server."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.registry.register(_Now(dispatcher))
        here = {"namespace": "nightingale", "registry": self.registry}
        self.requests = Counter(
            "requests",
            "Requests by outcome.",
            ["ending"],
            **here,  # type: ignore[arg-type]
        )
        self.first_audio = Histogram(
            "first_audio_seconds", "From the request to its first audible sample.",
            buckets=_FIRST_S, **here,  # type: ignore[arg-type]
        )  # fmt: skip
        self.rtf = Histogram(
            "real_time_factor", "Seconds of computing for a second of audio.",
            buckets=_RTF, **here,  # type: ignore[arg-type]
        )  # fmt: skip
        self.audio = Counter("audio_seconds", "Seconds of audio generated.", **here)  # type: ignore[arg-type]
        self.characters = Counter("characters", "Characters of input text.", **here)  # type: ignore[arg-type]
        self.underruns = Counter(
            "underruns",
            "Gaps over 0.1 s that a listener of a stream would hear.",
            **here,  # type: ignore[arg-type]
        )
        self.underrun_s = Counter(
            "underrun_seconds",
            "Total length of these gaps.",
            **here,  # type: ignore[arg-type]
        )
        self.refused = Counter(
            "refused", "HTTP and WebSocket requests refused, by status; 401: wrong API key.",
            ["status"], **here,  # type: ignore[arg-type]
        )  # fmt: skip
        self.connections = Gauge(
            "connections", "Open connections of all protocols.", **here,  # type: ignore[arg-type]
        )  # fmt: skip
        self.clones = Counter(
            "clones", "Voice cloning requests by outcome.", ["ending"], **here,  # type: ignore[arg-type]
        )  # fmt: skip
        for ending in ("created", "refused", "failed", "gone", "rejected"):
            self.clones.labels(ending)
        for status in ("401", "403", "429", "503"):
            self.refused.labels(status)
        for ending in ("stop", "length", "cancelled", "gone", "refused", "failed", "rejected"):
            self.requests.labels(ending)

    def note(self, utterance: Utterance, ending: str) -> None:
        """A request is over."""
        self.requests.labels(ending).inc()
        clock, seconds = utterance.clock, utterance.n_received / 24_000
        self.audio.inc(seconds)
        if clock.first_s is not None:
            self.first_audio.observe(clock.first_s)
        if utterance.outcome is not None and utterance.outcome.work_s and seconds:
            self.rtf.observe(utterance.outcome.work_s / seconds)
        self.underruns.inc(len(clock.gaps_s))
        self.underrun_s.inc(sum(clock.gaps_s))


class _Now(Collector):
    """What is read off when somebody asks."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher

    def collect(self) -> Iterable[Metric]:
        dispatcher, supervisor = self._dispatcher, self._dispatcher.supervisor
        for name, text, value in (
            ("speaking", "Requests in progress.", dispatcher.n_speaking),
            ("waiting", "Requests in the queue.", dispatcher.n_waiting),
            ("paused", "Utterances that wait for text or for their reader.", dispatcher.n_paused),
            ("worker_up", "1 if a worker is ready.", int(supervisor.is_ready)),
            (
                "circuit_breaker_open",
                "1 if no worker is started because workers failed repeatedly.",
                int(supervisor.breaker.state is BreakerState.OPEN),
            ),
            (
                "worker_memory_bytes",
                "Resident memory of the worker process.",
                dispatcher.worker_bytes,
            ),
            (
                "worker_start_seconds",
                "Duration of the last start of the worker.",
                supervisor.start_s,
            ),
            ("front_threads", "Threads of the front process.", _n_threads()),
        ):
            yield GaugeMetricFamily(f"nightingale_{name}", text, value=value)
        for name, text, value in (
            (
                "worker_restarts",
                "Worker processes that died and were restarted.",
                supervisor.n_deaths,
            ),
            ("resumed", "Streams resumed by another worker process.", dispatcher.n_resumed),
            ("moved", "Streams continued by another kind of worker.", dispatcher.n_moved),
            ("rejected", "Requests rejected because the queue was full.", dispatcher.n_rejected),
        ):
            yield CounterMetricFamily(f"nightingale_{name}", text, value=value)


def _n_threads() -> int:
    try:
        return len(os.listdir("/proc/self/task"))  # noqa: PTH208
    except OSError:
        return 0
