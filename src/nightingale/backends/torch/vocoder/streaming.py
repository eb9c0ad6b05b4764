"""The vocoder on frames as they come: samples of those whose surroundings are known.

Some of the latest frames are held back, because a frame is heard together with those behind it; a
state says where the utterance stands. With all of the context held back, pieces are the whole (but
for rounding). Held back less, sound comes sooner, and differs near the end of each piece.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from nightingale.backends.torch.vocoder.model import (
    F0_CONTEXT,
    FILTER_CONTEXT,
    FrameSlice,
    Vocoder,
)
from nightingale.backends.torch.vocoder.pieces import Piece
from nightingale.backends.torch.vocoder.source import SourceState, draw_noise
from nightingale.core import SAMPLES_PER_FRAME

EXACT = F0_CONTEXT + FILTER_CONTEXT  # frames to hold back for pieces that are the whole


@dataclass(frozen=True, slots=True, eq=False)
class VocoderState:
    """Where an utterance stands. Handed along, never changed."""

    mel: Tensor  # (80, M): frames that are still needed, the first of them number `first`
    source: Tensor  # (N,): their excitation, as far as it was made
    pitch: SourceState  # behind that excitation
    first: int = 0
    n_done: int = 0  # frames whose samples were given
    caches: tuple[Piece, ...] = ()  # of the filter's layers

    @classmethod
    def start(cls, vocoder: Vocoder, seed: int) -> VocoderState:
        config = vocoder.config
        pitch = SourceState.start(seed, config.n_harmonics)
        return cls(torch.empty(config.n_mels, 0), torch.empty(0), pitch)


@torch.inference_mode()
def vocode_next(
    vocoder: Vocoder,
    mel: Tensor,
    state: VocoderState,
    seed: int,
    *,
    is_last: bool,
    n_lookahead: int = EXACT,
) -> tuple[Tensor, VocoderState]:
    """(80, M) new frames -> samples of all frames that may be heard now, and the state behind."""
    frames = torch.cat((state.mel.to(mel), mel), dim=1)
    n_frames = state.first + frames.shape[1]
    held_pitch = min(F0_CONTEXT, n_lookahead)
    n_pitched = n_frames if is_last else max(state.pitch.frame, n_frames - held_pitch)
    made, pitch = _excite(vocoder, frames, state, seed, n_pitched)
    source = torch.cat((state.source.to(made), made))
    n_ready = (
        n_frames if is_last else max(state.n_done, n_pitched - max(0, n_lookahead - held_pitch))
    )
    if n_ready == state.n_done:
        return mel.new_empty(0), replace(state, mel=frames, source=source, pitch=pitch)
    at = FrameSlice(state.first, state.n_done, n_ready, is_last)
    heard = frames[:, : n_pitched - state.first]
    samples, caches = vocoder.filter_slice(heard, source, at, state.caches)
    first = max(state.first, n_ready - EXACT)
    cut = first - state.first
    kept = frames[:, cut:].clone(), source[cut * SAMPLES_PER_FRAME :].clone()
    return samples, VocoderState(*kept, pitch, first, n_ready, caches)


def _excite(
    vocoder: Vocoder, frames: Tensor, state: VocoderState, seed: int, n_pitched: int
) -> tuple[Tensor, SourceState]:
    """The source of the frames that have none yet, up to number `n_pitched`."""
    n_new = n_pitched - state.pitch.frame
    if n_new <= 0:
        return frames.new_empty(0), state.pitch
    at = state.pitch.frame - state.first
    begin = max(0, at - F0_CONTEXT)
    f0 = vocoder.f0(frames[:, begin:])[at - begin :][:n_new]
    n_harmonics = vocoder.config.n_harmonics
    noise = draw_noise(seed, state.pitch.frame, n_new, n_harmonics, SAMPLES_PER_FRAME)
    return vocoder.source(f0, state.pitch, noise)
