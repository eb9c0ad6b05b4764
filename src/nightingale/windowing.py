"""Windows of speech tokens, which are rendered one after the other; the plan fixes their sizes.

The first windows are short, so that sound comes soon; later ones are longer, which costs less. What
a listener does with the sound has no influence on it. A state says where an utterance stands: it is
handed along and never changed, so that any worker can go on from it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, repeat

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nightingale.audio.streaming_watermark import WatermarkState, watermark_next
from nightingale.audio.watermark import Watermarker
from nightingale.core import SAMPLES_PER_TOKEN, FlowPrompt
from nightingale.flow.model import Flow
from nightingale.flow.window import FlowState
from nightingale.vocoder.model import Vocoder, fade_in
from nightingale.vocoder.streaming import VocoderState, vocode_next

LOOKAHEAD_TOKENS = 3  # tokens that the flow's encoder looks at behind a window
CONTEXT_WINDOWS = 2  # windows that a window sees, besides the voice's recording


@dataclass(frozen=True, slots=True)
class TokenWindow:
    """The tokens of one window, and the look-ahead behind them, unless it is the last."""

    tokens: list[int]
    is_last: bool

    @property
    def n_ahead(self) -> int:
        return 0 if self.is_last else LOOKAHEAD_TOKENS


def token_windows(
    tokens: Iterable[int], window_sizes: Sequence[int]
) -> Iterator[TokenWindow | None]:
    """A window as soon as its tokens are there, and None for each token before that.

    Without sizes, one window holds everything.
    """
    held: list[int] = []
    sizes = chain(window_sizes, repeat(window_sizes[-1])) if window_sizes else None
    size = next(sizes) if sizes else 0
    for token in tokens:
        held.append(token)
        if sizes and len(held) == size + LOOKAHEAD_TOKENS:
            yield TokenWindow(held.copy(), is_last=False)
            del held[:size]
            size = next(sizes)
        else:
            yield None
    yield TokenWindow(held, is_last=True)


@dataclass(frozen=True, slots=True, eq=False)
class WaveState:
    """Where the sound of one utterance stands."""

    flow_state: FlowState
    vocoder: VocoderState
    watermark: WatermarkState
    n_samples: int = 0  # that the vocoder gave


@dataclass(frozen=True, slots=True, eq=False)
class WaveDecoder:
    """Windows of tokens -> samples. Holds weights and nothing of any request."""

    flow: Flow
    vocoder: Vocoder
    watermarker: Watermarker | None
    n_lookahead: int  # mel frames that the vocoder holds back, to know what follows
    drops_last: bool  # the sound of the last token is an artefact

    def start(self, flow_state: FlowState, seed: int) -> WaveState:
        """An utterance in the voice whose recording this flow_state is."""
        return WaveState(flow_state, VocoderState.start(self.vocoder, seed), WatermarkState.start())

    def render(
        self, state: WaveState, window: TokenWindow, prompt: FlowPrompt, seed: int
    ) -> tuple[Tensor, FlowState]:
        """(80, M) and where that leads"""
        tokens = torch.tensor(window.tokens)
        return self.flow.render_chunk(
            tokens, prompt, state.flow_state, seed, n_ahead=window.n_ahead, n_kept=CONTEXT_WINDOWS
        )

    def vocode(
        self, state: WaveState, window: TokenWindow, mel: Tensor, seed: int
    ) -> tuple[Tensor, VocoderState]:
        """Samples that may be heard, faded in where the utterance begins."""
        samples, behind = vocode_next(
            self.vocoder,
            mel,
            state.vocoder,
            seed,
            is_last=window.is_last,
            n_lookahead=self.n_lookahead,
        )
        if window.is_last and self.drops_last:
            n_whole = state.n_samples + len(samples)
            n_kept = max(SAMPLES_PER_TOKEN, n_whole - SAMPLES_PER_TOKEN) - state.n_samples
            samples = samples[:n_kept]
        return fade_in(samples, state.n_samples), behind

    def watermark(
        self, state: WaveState, window: TokenWindow, samples: NDArray[np.float32]
    ) -> tuple[NDArray[np.float32], WatermarkState]:
        """Marked as synthetic, if so wanted."""
        if self.watermarker is None:
            return samples, state.watermark
        return watermark_next(self.watermarker, samples, state.watermark, is_last=window.is_last)
