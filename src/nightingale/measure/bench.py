"""How fast a loaded model speaks, stage by stage, beside what the machine could do at best.

Warm, the same text every time. What is measured is `Nightingale.say` itself: its stages add up to
the time that a caller waits. Knows nothing of files and history.
"""

from __future__ import annotations

import itertools
import os
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from nightingale.core import (
    FRAMES_PER_TOKEN,
    SAMPLES_PER_SECOND,
    TOKENS_PER_SECOND,
    Timings,
    Voice,
)
from nightingale.measure import limits
from nightingale.measure.flops import flow_flops, vocoder_flops
from nightingale.pipeline import Nightingale

TEXT = "The quick brown fox jumps over the lazy dog, and then the two of them share a meal."
AUDIBLE = 0.01  # of full scale: 40 dB below the loudest
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
    audible_ms: float  # until the first sample that can be heard

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
    limits_ms: dict[str, float]
    step_limit_ms: float
    peak_mb: float

    def figures(self) -> dict[str, list[float]]:
        """Every figure of every trial; stages also by their limit: ratios outlive the day."""
        rows: dict[str, Callable[[Trial], float]] = {
            "real-time factor": lambda trial: trial.rtf,
            "first sample ms": lambda trial: trial.wall_ms,  # it all comes at once
            "audible sample ms": lambda trial: trial.audible_ms,
            "first token ms": lambda trial: trial.first_token_ms,
            "step ms": lambda trial: trial.step_ms,
            "step / limit": lambda trial: trial.step_ms / self.step_limit_ms,
            "tokens per second": lambda trial: 1e3 * trial.n_tokens / trial.timings.tokens_ms,
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
            "figures": {name: list(map(_short, v)) for name, v in figures.items()},
        }


def bench(
    engine: Nightingale,
    text: str = TEXT,
    voice: Voice | None = None,
    *,
    n_trials: int = 5,
    seconds: float = 5.0,
    progress: Callable[[int], None] = lambda _n_done: None,
) -> Result:
    """Speak a text again and again, for at most so many seconds of speech."""
    n_tokens = round(seconds * TOKENS_PER_SECOND)
    warm = speak(engine, text, voice, n_tokens)
    work = Work.of(engine, warm.n_tokens, voice or engine.parts.voice)
    trials, bounds = [], []
    for done in range(n_trials):
        trials.append(speak(engine, text, voice, n_tokens))
        bounds.append(work.limits_ms())
        progress(done + 1)
    best = {stage: min(bound[stage] for bound in bounds) for stage in STAGES}
    return Result(tuple(trials), best, best["t3"] / warm.n_tokens, peak_mb())


def speak(engine: Nightingale, text: str, voice: Voice | None, n_tokens: int) -> Trial:
    """One utterance with the clock running."""
    ticks = [time.perf_counter()]
    audio = engine.say(
        text, voice, max_tokens=n_tokens, progress=lambda _n: ticks.append(time.perf_counter())
    )
    wall_ms = 1e3 * (time.perf_counter() - ticks[0])
    steps = [1e3 * (b - a) for a, b in itertools.pairwise(ticks[1:])]
    return Trial(
        wall_ms=wall_ms,
        timings=audio.timings,
        first_token_ms=1e3 * (ticks[1] - ticks[0]),
        step_ms=statistics.median(steps) if steps else 0.0,
        n_tokens=len(ticks) - 1,
        seconds=audio.seconds,
        audible_ms=wall_ms + first_audible_ms(audio.samples),
    )


def first_audible_ms(samples: NDArray[np.float32]) -> float:
    """How much silence comes first."""
    heard = np.abs(samples) > AUDIBLE
    silent = int(heard.argmax()) if heard.any() else len(samples)
    return 1e3 * silent / SAMPLES_PER_SECOND


@dataclass(frozen=True, slots=True)
class Work:
    """What each stage must do at least: T3 reads its weights for every token, the others
    multiply."""

    n_tokens: int
    t3_bytes: int  # a step
    flow_flops: int
    vocoder_flops: int
    precisions: tuple[torch.dtype, torch.dtype]  # of flow and vocoder
    device: torch.device

    @classmethod
    def of(cls, engine: Nightingale, n_tokens: int, voice: Voice) -> Work:
        parts = engine.parts
        return cls(
            n_tokens,
            n_bytes([parts.t3.tfmr, parts.t3.speech_head]),
            flow_flops(parts.flow.config, n_tokens, len(voice.flow.tokens)),
            vocoder_flops(parts.vocoder.config, FRAMES_PER_TOKEN * n_tokens),
            (parts.flow.estimator.dtype, parts.vocoder.dtype),
            parts.placement.device,
        )

    def limits_ms(self) -> dict[str, float]:
        """The least time for it, as the machine is now."""
        flow, vocoder = (limits.product_flops(dtype, self.device) for dtype in self.precisions)
        return {
            "t3": self.n_tokens * limits.stream_ms(self.t3_bytes),
            "flow": 1e3 * self.flow_flops / flow,
            "vocoder": 1e3 * self.vocoder_flops / vocoder,
        }


def n_bytes(modules: Iterable[nn.Module]) -> int:
    """What a step reads: all weights of some modules, in whatever form they are kept."""
    return sum(tensor.nbytes for module in modules for tensor in module.state_dict().values())


def _short(value: float) -> float:
    return float(f"{value:.4g}")


def peak_mb() -> float:
    """The most memory that this process ever had."""
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
    told = Path("/proc/cpuinfo")
    for line in told.read_text().splitlines() if told.is_file() else ():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
