"""How fast a loaded model speaks, stage by stage, beside what the machine could do at best.

Warm, the same text every time. What is measured is `Nightingale.stream` itself, to its end: its
stages add up to the time that a caller waits. Knows nothing of files and history.
"""

from __future__ import annotations

import itertools
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from nightingale.audio.audible import FirstAudible
from nightingale.core import (
    FRAMES_PER_TOKEN,
    SAMPLES_PER_SECOND,
    TOKENS_PER_SECOND,
    Timings,
    Voice,
)
from nightingale.measure import limits
from nightingale.measure.flops import flow_flops, vocoder_flops
from nightingale.measure.stages import torch_device, torch_stages
from nightingale.nn.device import peak_bytes
from nightingale.pipeline import Nightingale
from nightingale.windowing import token_windows

TEXT = "The quick brown fox jumps over the lazy dog, and then the two of them share a meal."
BUFFER_MS = 200  # that a listener waits for before playing
STAGES = ("t3", "flow", "vocoder")


@dataclass(frozen=True, slots=True)
class Trial:
    """One utterance, as its caller saw it."""

    wall_ms: float
    timings: Timings
    first_token_ms: float
    step_ms: float  # the median one
    n_tokens: int
    seconds: float  # of speech
    first_ms: float  # until the first sample
    audible_ms: float  # until the first that can be heard
    n_gaps: int  # times that a listener with a small buffer heard nothing

    @property
    def rtf(self) -> float:
        return self.wall_ms / 1e3 / self.seconds

    @property
    def stages_ms(self) -> dict[str, float]:
        return {
            "t3": self.timings.tokens_ms,
            "flow": self.timings.mel_ms,
            "vocoder": self.timings.samples_ms,
        }


@dataclass(frozen=True, slots=True)
class Result:
    """Trials, and the limit of each stage for the same work, measured between them."""

    trials: tuple[Trial, ...]
    limits_ms: dict[str, float]  # and of the first sample, and of everything
    step_limit_ms: float
    peak_mb: float

    def figures(self) -> dict[str, list[float]]:
        """Every figure of every trial; stages also by their limit: ratios outlive the day."""
        rows: dict[str, Callable[[Trial], float]] = {
            "real-time factor": lambda trial: trial.rtf,
            "first sample ms": lambda trial: trial.first_ms,
            "audible sample ms": lambda trial: trial.audible_ms,
            "first token ms": lambda trial: trial.first_token_ms,
            "step ms": lambda trial: trial.step_ms,
            "step / limit": lambda trial: trial.step_ms / self.step_limit_ms,
            "tokens per second": lambda trial: 1e3 * trial.n_tokens / trial.timings.tokens_ms,
            "first sample / limit": lambda trial: trial.first_ms / self.limits_ms["first"],
            "all / limit": lambda trial: trial.wall_ms / self.limits_ms["all"],
        }
        figures = {name: [row(trial) for trial in self.trials] for name, row in rows.items()}
        for stage in STAGES:
            spent = [trial.stages_ms[stage] for trial in self.trials]
            figures[f"{stage} ms"] = spent
            figures[f"{stage} / limit"] = [ms / self.limits_ms[stage] for ms in spent]
        return figures

    def facts(self) -> dict[str, Any]:
        """Everything, ready for JSON."""
        figures = self.figures()
        return {
            "machine": machine(),
            "n_trials": len(self.trials),
            "n_tokens": self.trials[0].n_tokens,
            "seconds": self.trials[0].seconds,
            "medians": {name: _short(statistics.median(v)) for name, v in figures.items()},
            "limits_ms": {stage: _short(ms) for stage, ms in self.limits_ms.items()},
            "step_limit_ms": _short(self.step_limit_ms),
            "peak_mb": round(self.peak_mb),
            f"gaps_at_{BUFFER_MS}_ms": sum(trial.n_gaps for trial in self.trials),
            "figures": {name: list(map(_short, v)) for name, v in figures.items()},
        }


def bench(
    tts: Nightingale,
    text: str = TEXT,
    voice: Voice | None = None,
    *,
    n_trials: int = 5,
    seconds: float = 5.0,
    progress: Callable[[int], None] = lambda _n_done: None,
) -> Result:
    """Speak a text again and again, for at most so many seconds of speech."""
    n_tokens = round(seconds * TOKENS_PER_SECOND)
    warm = speak(tts, text, voice, n_tokens)
    work = Work.of(tts, warm.n_tokens, voice or tts.components.voice)
    trials, bounds = [], []
    for done in range(n_trials):
        trials.append(speak(tts, text, voice, n_tokens))
        bounds.append(work.limits_ms())
        progress(done + 1)
    best = {name: min(bound[name] for bound in bounds) for name in bounds[0]}
    return Result(tuple(trials), best, best["t3"] / warm.n_tokens, peak_mb(work.device))


def speak(tts: Nightingale, text: str, voice: Voice | None, n_tokens: int) -> Trial:
    """One utterance with the clock running."""
    ticks = [time.perf_counter()]
    speech = tts.stream(
        text,
        voice,
        max_tokens=n_tokens,
        guard=False,  # so many tokens, whatever they say
        progress=lambda _n: ticks.append(time.perf_counter()),
    )
    chunks = [(chunk.samples, 1e3 * (time.perf_counter() - ticks[0])) for chunk in speech]
    wall_ms = 1e3 * (time.perf_counter() - ticks[0])
    steps = [1e3 * (b - a) for a, b in itertools.pairwise(ticks[1:])]
    arrivals = [(1e3 * len(samples) / SAMPLES_PER_SECOND, at_ms) for samples, at_ms in chunks]
    return Trial(
        wall_ms=wall_ms,
        timings=speech.timings,
        first_token_ms=1e3 * (ticks[1] - ticks[0]),
        step_ms=statistics.median(steps) if steps else 0.0,
        n_tokens=len(ticks) - 1,
        seconds=sum(length_ms for length_ms, _ in arrivals) / 1e3,
        first_ms=arrivals[0][1],
        audible_ms=first_audible_ms(chunks),
        n_gaps=gaps(arrivals, BUFFER_MS),
    )


def first_audible_ms(chunks: Sequence[tuple[NDArray[np.float32], float]]) -> float:
    """When the first sample that can be heard is played, if playing starts with the first one."""
    listener = FirstAudible()
    for samples, at_ms in chunks:
        listener.note(samples, at_ms / 1e3)
    seconds = listener.at_s if listener.at_s is not None else listener.played_s
    return 1e3 * seconds


def gaps(arrivals: Sequence[tuple[float, float]], buffer_ms: float) -> int:
    """How often playing stops, if it starts as soon as so much is there; of (length, arrival)."""
    ready_ms = itertools.accumulate(length_ms for length_ms, _ in arrivals)
    enough = [
        at_ms for (_, at_ms), ready in zip(arrivals, ready_ms, strict=True) if ready >= buffer_ms
    ]
    silent_at, n_gaps = enough[0] if enough else arrivals[-1][1], 0
    for length_ms, at_ms in arrivals:
        if at_ms > silent_at:
            n_gaps += 1
        silent_at = max(silent_at, at_ms) + length_ms
    return n_gaps


@dataclass(frozen=True, slots=True)
class Work:
    """What each stage must do at least: T3 reads its weights for every token, the others
    multiply."""

    n_tokens: int
    n_first: int  # tokens before the first sample
    n_windows: int
    t3_bytes: int  # a step
    window_bytes: int  # that the other two read, at least, for each window
    flow_flops: int
    vocoder_flops: int
    precisions: tuple[torch.dtype, torch.dtype]  # of flow and vocoder
    device: torch.device

    @classmethod
    def of(cls, tts: Nightingale, n_tokens: int, voice: Voice) -> Work:
        components, stages = tts.components, torch_stages(tts.components)
        windows = [
            len(window.tokens)
            for window in token_windows(range(n_tokens), components.plan.window_sizes)
            if window
        ]
        return cls(
            n_tokens,
            windows[0],
            len(windows),
            stages.t3.step_bytes,
            stages.flow.window_bytes + stages.vocoder.weight_bytes,
            flow_flops(stages.flow.config, n_tokens, len(voice.flow.tokens)),
            vocoder_flops(stages.vocoder.config, FRAMES_PER_TOKEN * n_tokens),
            (stages.flow.dtype, stages.vocoder.dtype),
            torch_device(components),
        )

    def limits_ms(self) -> dict[str, float]:
        """The least time for it, as the machine is now.

        Of plans with windows, `first` and `all` take for each window what reading its weights does;
        its products, of few frames, are less than that.
        """
        flow, vocoder = (limits.product_flops(dtype, self.device) for dtype in self.precisions)
        step_ms = limits.stream_ms(self.t3_bytes, self.device)
        stages = {
            "t3": self.n_tokens * step_ms,
            "flow": 1e3 * self.flow_flops / flow,
            "vocoder": 1e3 * self.vocoder_flops / vocoder,
        }
        if self.n_windows == 1:
            return {**stages, "first": sum(stages.values()), "all": sum(stages.values())}
        window_ms = limits.stream_ms(self.window_bytes, self.device)
        return {
            **stages,
            "first": self.n_first * step_ms + window_ms,
            "all": stages["t3"] + self.n_windows * window_ms,
        }


def _short(value: float) -> float:
    return float(f"{value:.4g}")


def peak_mb(device: torch.device) -> float:
    """The most memory that tensors took on a device; on the host, that this process ever had."""
    n_bytes = peak_bytes(device)
    if n_bytes is not None:
        return n_bytes / 2**20
    try:
        import resource  # noqa: PLC0415
    except ImportError:  # Windows
        return float("nan")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)


def machine() -> dict[str, Any]:
    """What a result is only comparable on."""
    return {
        "processor": _processor(),
        "n_cores": os.cpu_count(),
        "n_threads": torch.get_num_threads(),
        "torch": torch.__version__,
        "python": platform.python_version(),
    }


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    for line in cpuinfo.read_text().splitlines() if cpuinfo.is_file() else ():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
