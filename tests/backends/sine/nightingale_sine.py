"""A backend that plays one sine for each text token: the smallest that there can be."""

# ruff: noqa: ARG002

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from nightingale.backends import base
from nightingale.core import END_OF_SPEECH, SAMPLES_PER_SECOND, FlowPrompt, Plan, T3Prompt
from nightingale.core import SAMPLES_PER_FRAME as N_SAMPLES
from nightingale.errors import TextError
from nightingale.speaking_rate import RateState, pace_frames


class SineEngine:
    def __init__(self) -> None:
        self._live, self._n_added = dict[int, tuple[list[int], int]](), 0  # tokens, how many said

    def add(self, request: base.TokenRequest) -> int:
        if not request.text:
            raise TextError("there is no text")
        tokens = [*(4 * token + 100 for token in request.text), END_OF_SPEECH]
        tokens[: len(request.forced)] = request.forced
        self._n_added += 1
        self._live[self._n_added] = tokens[: request.options.max_tokens], 0
        return self._n_added

    def step(self, numbers: Collection[int]) -> list[base.TokenEvent]:
        return [self._step(number, *self._live[number]) for number in numbers]

    def _step(self, number: int, tokens: list[int], at: int) -> base.TokenEvent:
        self._live[number] = tokens, at + 1
        is_last = at + 1 == len(tokens)
        if is_last:
            self.cancel(number)
        return base.TokenEvent(number, tokens[at], at, is_last)

    def cancel(self, number: int) -> None:
        self._live.pop(number, None)

    def forget(self, prompt: T3Prompt) -> None: ...


class SineState(RateState):
    def to_bytes(self) -> bytes:
        return np.array([self.n_in, self.n_out, *self.last.flat], np.float64).tobytes()


class SineDecoder:
    def start(self, prompt: FlowPrompt, seed: int, speed: float = 1.0) -> SineState:
        return SineState(speed)

    def restore(self, data: bytes, prompt: FlowPrompt, seed: int, speed: float = 1.0) -> SineState:
        n_in, n_out, *last = np.frombuffer(data)
        return SineState(speed, int(n_in), int(n_out), np.array([last], np.float32))

    def decode(self, jobs: Sequence[base.WindowJob]) -> list[base.DecodedWindow]:
        return [self._decode(job.window, job.state) for job in jobs]

    def _decode(self, window: base.TokenWindow, state: base.WaveState) -> base.DecodedWindow:
        assert isinstance(state, SineState)
        spoken = window.tokens[: len(window.tokens) - window.n_ahead]
        hertz = np.repeat(np.array([spoken], np.float32), 2, axis=1)  # of each frame
        hertz, behind = pace_frames(hertz, state, is_last=window.is_last)
        assert isinstance(behind, SineState)
        first, n_samples = state.n_out * N_SAMPLES, hertz.size * N_SAMPLES
        time_s = np.arange(first, first + n_samples) / SAMPLES_PER_SECOND
        wave = np.sin(2 * np.pi * np.repeat(hertz[0], N_SAMPLES) * time_s) / 4
        return base.DecodedWindow(wave.astype(np.float32), behind, 0.0, 0.0)

    def forget(self, prompt: FlowPrompt) -> None: ...


class SineBackend:
    name = "sine"

    def availability(self) -> base.Availability:
        return base.Availability(is_available=True, facts={"sines": "one for each text token"})

    def resolve(self, plan: Plan, device: str) -> base.ResolvedPlan:
        return base.ResolvedPlan(plan, device)

    def load(self, files: base.ModelFiles) -> base.LoadedModel:
        return base.LoadedModel(SineEngine(), SineDecoder(), device=files.device)
