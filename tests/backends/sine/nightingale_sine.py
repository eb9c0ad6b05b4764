"""A backend that plays one sine for each text token: the smallest that there can be."""

# ruff: noqa: ARG002

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from nightingale.backends import base
from nightingale.core import END_OF_SPEECH, SAMPLES_PER_SECOND, FlowPrompt, Plan, T3Prompt
from nightingale.core import SAMPLES_PER_TOKEN as N_SAMPLES
from nightingale.errors import TextError


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


class SineState:
    def to_bytes(self) -> bytes:
        return b""


class SineDecoder:
    def start(self, prompt: FlowPrompt, seed: int) -> SineState:
        return SineState()

    def restore(self, data: bytes, prompt: FlowPrompt, seed: int) -> SineState:
        return SineState()

    def decode(self, jobs: Sequence[base.WindowJob]) -> list[base.DecodedWindow]:
        time_s = np.arange(N_SAMPLES) / SAMPLES_PER_SECOND
        spoken = [job.window.tokens[: len(job.window.tokens) - job.window.n_ahead] for job in jobs]
        waves = [np.concatenate([np.sin(2 * np.pi * t * time_s) / 4 for t in n]) for n in spoken]
        return [base.DecodedWindow(w.astype(np.float32), SineState(), 0.0, 0.0) for w in waves]

    def forget(self, prompt: FlowPrompt) -> None: ...


class SineBackend:
    name = "sine"

    def availability(self) -> base.Availability:
        return base.Availability(is_available=True, facts={"sines": "one for each text token"})

    def resolve(self, plan: Plan, device: str) -> base.ResolvedPlan:
        return base.ResolvedPlan(plan, device)

    def load(self, files: base.ModelFiles) -> base.LoadedModel:
        return base.LoadedModel(SineEngine(), SineDecoder(), device=files.device)
