"""Flow and vocoder behind the backend interface: an utterance at once, or window after window.

Whole, it is numerically the upstream model. Windowed, sound comes from the first tokens on, and a
state says where an utterance stands. Both hold weights, the states of voices' recordings, and
nothing of any request.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nightingale.backends.base import DecodedWindow, TokenWindow, WaveState, WindowJob
from nightingale.backends.torch import state_bytes
from nightingale.backends.torch.flow.model import Flow, FlowChunk
from nightingale.backends.torch.flow.window import FlowState
from nightingale.backends.torch.vocoder.model import Vocoder, fade_in
from nightingale.backends.torch.vocoder.streaming import VocoderState, vocode_next
from nightingale.core import (
    FRAMES_PER_TOKEN,
    SAMPLES_PER_FRAME,
    TOKENS_PER_SECOND,
    FlowPrompt,
    Plan,
)
from nightingale.errors import OptionError
from nightingale.nn.contention import MONITOR
from nightingale.nn.deterministic import FEW
from nightingale.nn.device import free_bytes, synchronize
from nightingale.nn.lru import ByteLimitedLRU
from nightingale.speaking_rate import RateState, n_paced, pace_frames

CONTEXT_WINDOWS = 2  # windows that a window sees, besides the voice's recording
MAX_JOINT_WINDOWS = 4  # in one pass, where any number may be: more hardly pays and delays the first
MIN_PROMPT_BYTES = 2**31  # of recordings that were rendered, where there is so much memory
N_PROMPTS, PROMPT_TOKENS = 4, 10 * TOKENS_PER_SECOND  # of voices in turns: none is rendered twice
S = TypeVar("S")


class PromptStates:
    """The flow's states behind voices' recordings: each is computed once and then cached."""

    def __init__(self, flow: Flow, max_bytes: int) -> None:
        self._flow = flow
        self._kept: ByteLimitedLRU[FlowState] = ByteLimitedLRU(max_bytes)

    def get(self, prompt: FlowPrompt) -> FlowState:
        return self._kept.get(_content(prompt), lambda: self._flow.prefill(prompt))

    def forget(self, prompt: FlowPrompt) -> None:
        self._kept.forget(_content(prompt))

    def __len__(self) -> int:
        return len(self._kept)


def _content(prompt: FlowPrompt) -> tuple[NDArray[np.generic], ...]:
    return prompt.tokens, prompt.mel, prompt.xvector


@dataclass(frozen=True, slots=True, eq=False)
class WholeState:
    """An utterance that is not begun, or has ended."""

    prompt: FlowPrompt
    seed: int
    rate: RateState = field(default_factory=RateState)

    def to_bytes(self) -> bytes:
        return b""


@dataclass(frozen=True, slots=True, eq=False)
class WindowedState:
    """Where the sound of one utterance stands."""

    prompt: FlowPrompt
    seed: int
    flow: FlowState
    vocoder: VocoderState
    n_samples: int = 0  # that the vocoder gave
    rate: RateState = field(default_factory=RateState)

    def to_bytes(self) -> bytes:
        rate, last = self.rate, torch.from_numpy(self.rate.last)
        paced = (rate.n_in, rate.n_out, last)
        return state_bytes.pack((self.flow.without_prompt(), self.vocoder, self.n_samples, paced))


_Work = tuple[TokenWindow, WindowedState]


def _shape(window: TokenWindow) -> tuple[int, int]:
    return len(window.tokens), window.n_ahead


class WholeDecoder:
    """The utterance at once: numerically the upstream model."""

    def __init__(
        self, flow: Flow, vocoder: Vocoder, plan: Plan, *, drops_last: bool, max_prompt_bytes: int
    ) -> None:
        self.flow, self.vocoder, self._drops_last = flow, vocoder, drops_last
        self._prompts = PromptStates(flow, max_prompt_bytes) if plan.prompt_cache else None

    def start(self, prompt: FlowPrompt, seed: int, speed: float = 1.0) -> WholeState:
        return WholeState(prompt, seed, RateState(speed))

    def restore(
        self,
        data: bytes,  # noqa: ARG002
        prompt: FlowPrompt,
        seed: int,
        speed: float = 1.0,
    ) -> WholeState:
        return self.start(prompt, seed, speed)

    def decode(self, jobs: Sequence[WindowJob]) -> list[DecodedWindow]:
        with MONITOR.computing():
            return [self._decode(job.window, _own(WholeState, job.state)) for job in jobs]

    @torch.inference_mode()
    def _decode(self, window: TokenWindow, state: WholeState) -> DecodedWindow:
        if not window.is_last:
            raise OptionError("this decoder takes an utterance as one window")
        begun = time.perf_counter()
        mel = self.render([window], state.prompt, state.seed)
        synchronize(mel.device)  # or the vocoder's time would be that of both
        rendered = time.perf_counter()
        mel, _ = _paced(mel, state.rate, is_last=True)
        samples = fade_in(self.vocoder.vocode(mel, state.seed))
        if self._drops_last:
            n_tokens, speed = max(1, len(window.tokens) - 1), state.rate.speed
            samples = samples[: _n_samples(n_tokens * FRAMES_PER_TOKEN, speed)]
        sound = samples.cpu().numpy()
        return _decoded(sound, state, begun, rendered)

    @torch.inference_mode()
    def render(
        self, windows: Iterable[TokenWindow | None], prompt: FlowPrompt, seed: int
    ) -> Tensor:
        """(80, M): the mel alone, of the one window of an utterance."""
        *_, window = filter(None, windows)
        codes = torch.tensor(window.tokens)
        if self._prompts is None:
            return self.flow.render(codes, prompt, seed)
        return self.flow.render_chunk(codes, prompt, self._prompts.get(prompt), seed)[0]

    def forget(self, prompt: FlowPrompt) -> None:
        if self._prompts is not None:
            self._prompts.forget(prompt)


class WindowedDecoder:
    """Window after window, each from the state that the one before it left."""

    def __init__(
        self, flow: Flow, vocoder: Vocoder, plan: Plan, *, drops_last: bool, max_prompt_bytes: int
    ) -> None:
        self.flow, self.vocoder, self._drops_last = flow, vocoder, drops_last
        self._plan, self._prompts = plan, PromptStates(flow, max_prompt_bytes)
        self._n_joint = plan.window_slots or MAX_JOINT_WINDOWS

    def start(self, prompt: FlowPrompt, seed: int, speed: float = 1.0) -> WindowedState:
        vocoder = VocoderState.start(self.vocoder, seed)
        flow = self._prompts.get(prompt)
        return WindowedState(prompt, seed, flow, vocoder, rate=RateState(speed))

    def restore(
        self,
        data: bytes,
        prompt: FlowPrompt,
        seed: int,
        speed: float = 1.0,
    ) -> WindowedState:
        flow, vocoder, n_samples, (n_in, n_out, last) = state_bytes.unpack(data)
        flow = self.flow.place_state(flow).with_prompt(self._prompts.get(prompt))
        rate = RateState(speed, n_in, n_out, last.numpy())
        return WindowedState(prompt, seed, flow, vocoder, n_samples, rate)

    def decode(self, jobs: Sequence[WindowJob]) -> list[DecodedWindow]:
        with MONITOR.computing():
            work = [(job.window, _own(WindowedState, job.state)) for job in jobs]
            return [window for alike in self._groups(work) for window in self._decode(alike)]

    def _groups(self, work: Sequence[_Work]) -> Iterator[Sequence[_Work]]:
        """Neighbours that are rendered in one pass. The last window of an utterance never is: its
        size is its own."""
        for (n_tokens, n_ahead), group in itertools.groupby(work, lambda it: _shape(it[0])):
            alike = list(group)
            n = self._n_joint if n_ahead and n_tokens - n_ahead > max(FEW) else 1
            yield from (alike[at : at + n] for at in range(0, len(alike), n))

    @torch.inference_mode()
    def _decode(self, work: Sequence[_Work]) -> Iterator[DecodedWindow]:
        begun = time.perf_counter()
        rendered = self.render_windows(work)
        synchronize(rendered[0][0].device)
        mel_ms = 1e3 * (time.perf_counter() - begun) / len(work)
        for (window, before), (mel, flow) in zip(work, rendered, strict=True):
            begun = time.perf_counter()
            paced, rate = _paced(mel, before.rate, is_last=window.is_last)
            state = replace(before, flow=flow, rate=rate)
            samples, vocoder = self.vocode_window(window, state, paced)
            sound = samples.cpu().numpy()
            behind = replace(state, vocoder=vocoder, n_samples=state.n_samples + len(sound))
            yield DecodedWindow(sound, behind, mel_ms, 1e3 * (time.perf_counter() - begun))

    def render_windows(self, work: Sequence[_Work]) -> list[tuple[Tensor, FlowState]]:
        """(80, M) of each, all of one size, and where that leads"""
        chunks = [
            FlowChunk(torch.tensor(window.tokens), state.prompt, state.flow, state.seed)
            for window, state in work
        ]
        ahead = work[0][0].n_ahead
        n_rows = self._plan.window_slots if ahead else 1
        return self.flow.render_chunks(chunks, n_ahead=ahead, n_kept=CONTEXT_WINDOWS, n_rows=n_rows)

    def vocode_window(
        self, window: TokenWindow, state: WindowedState, mel: Tensor
    ) -> tuple[Tensor, VocoderState]:
        """Samples that may be heard, faded in where the utterance begins.

        The mel is paced already, and the state is that behind rendering it.
        """
        samples, behind = vocode_next(
            self.vocoder,
            mel,
            state.vocoder,
            state.seed,
            is_last=window.is_last,
            n_lookahead=self._plan.vocoder_lookahead,
        )
        if window.is_last and self._drops_last:
            n_frames = max(FRAMES_PER_TOKEN, state.flow.n_frames - FRAMES_PER_TOKEN)
            samples = samples[: _n_samples(n_frames, state.rate.speed) - state.n_samples]
        return fade_in(samples, state.n_samples), behind

    @torch.inference_mode()
    def render(
        self, windows: Iterable[TokenWindow | None], prompt: FlowPrompt, seed: int
    ) -> Tensor:
        """(80, M): the mel alone, of all windows of an utterance."""
        state, mels = self.start(prompt, seed), []
        for window in filter(None, windows):
            ((mel, flow),) = self.render_windows([(window, state)])
            state = replace(state, flow=flow)
            mels.append(mel)
        return torch.cat(mels, dim=1)

    def forget(self, prompt: FlowPrompt) -> None:
        self._prompts.forget(prompt)


TorchWaveDecoder = WholeDecoder | WindowedDecoder


def make_decoder(
    flow: Flow,
    vocoder: Vocoder,
    plan: Plan,
    *,
    drops_last: bool,
    max_prompt_bytes: int = MIN_PROMPT_BYTES,
) -> TorchWaveDecoder:
    """The one that the plan wants."""
    kind = WindowedDecoder if plan.window_sizes else WholeDecoder
    return kind(flow, vocoder, plan, drops_last=drops_last, max_prompt_bytes=max_prompt_bytes)


def prompt_cache_bytes(flow: Flow, device: torch.device) -> tuple[int, str]:
    """How much of a device rendered recordings may take, and why that is less than four voices of
    10 s need; empty: it is not."""
    one, free = flow.prompt_bytes(PROMPT_TOKENS), free_bytes(device)
    wanted = max(N_PROMPTS * one, MIN_PROMPT_BYTES)
    given = wanted if free is None else min(wanted, free // 2)
    if given >= N_PROMPTS * one:
        return given, ""
    n_voices = max(1, given // one)
    return given, (
        f"room for {n_voices} of {N_PROMPTS} voices of 10 s, {one / 1e9:.1f} GB each: "
        f"{device} has {(free or 0) / 1e9:.1f} GB free"
    )


def _paced(mel: Tensor, rate: RateState, *, is_last: bool) -> tuple[Tensor, RateState]:
    """The frames that are heard at this speed; at 1 they are those that were rendered."""
    if rate.speed == 1.0:
        return mel, rate
    frames, behind = pace_frames(mel.float().cpu().numpy(), rate, is_last=is_last)
    return torch.from_numpy(frames).to(mel), behind


def _n_samples(n_frames: int, speed: float) -> int:
    """How many are heard of an utterance of so many rendered frames."""
    return n_paced(n_frames, speed) * SAMPLES_PER_FRAME


def _own(kind: type[S], state: WaveState) -> S:
    if not isinstance(state, kind):
        raise OptionError(f"this decoder goes on from a {kind.__name__}, not from {state!r}")
    return state


def _decoded(
    samples: NDArray[np.float32], state: WaveState, begun: float, rendered: float
) -> DecodedWindow:
    ended = time.perf_counter()
    return DecodedWindow(samples, state, 1e3 * (rendered - begun), 1e3 * (ended - rendered))
