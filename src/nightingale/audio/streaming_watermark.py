"""Perth's watermark on sound as it comes, 64 ms behind it.

The same network as in `watermark`, whose frames of 64 ms, 10 ms apart, are as many hertz wide at
24 kHz, so that nothing is resampled. By how much a frame is changed is settled as soon as it is
whole, without the 150 ms behind it that a finished clip has to show. Frames overlap as they always
do, so there is no seam; only the change is added, so that where there is none, samples stay as they
were. The loudest frame is that of the sound so far.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from nightingale.audio import watermark
from nightingale.audio.watermark import N_BINS, RATE_HZ, SPAN_DB, Watermarker, gate, to_levels
from nightingale.core import SAMPLES_PER_SECOND

N_FFT = watermark.N_FFT * SAMPLES_PER_SECOND // RATE_HZ
HOP = watermark.HOP * SAMPLES_PER_SECOND // RATE_HZ
CONTEXT = watermark.DEPTH * (watermark.KERNEL // 2)  # frames that the network looks back
_LOUDER = RATE_HZ / SAMPLES_PER_SECOND  # a longer window sums up more


@dataclass(frozen=True, slots=True, eq=False)
class WatermarkState:
    """Where the marking of one utterance stands. Handed along, never changed."""

    wave: Tensor  # (N,): samples from the start of the next frame on
    change: Tensor  # (N_FFT,): what frames so far add to these
    weight: Tensor  # (N_FFT,): and the squares of their windows
    levels: Tensor  # (N_BINS, CONTEXT or less): of the frames before
    loudest: float = 0.0
    n_silent: int = N_FFT // 2  # samples of silence before the utterance that are still in `wave`

    @classmethod
    def start(cls) -> WatermarkState:
        before, nothing = torch.zeros(N_FFT // 2), torch.zeros(N_FFT)
        return cls(before, nothing, nothing, torch.empty(N_BINS, 0))


@torch.inference_mode()
def watermark_next(
    marker: Watermarker, samples: NDArray[np.float32], state: WatermarkState, *, is_last: bool
) -> tuple[NDArray[np.float32], WatermarkState]:
    """New samples -> watermarked ones, as far as they are settled, and the state behind them."""
    wave = torch.cat((state.wave, torch.from_numpy(samples)))
    n_known = len(wave)
    n_frames = -(-n_known // HOP) if is_last else max(0, (n_known - N_FFT) // HOP + 1)
    if n_frames == 0:
        kept = (state.change, state.weight, state.levels, state.loudest, state.n_silent)
        return np.zeros(0, np.float32), WatermarkState(wave, *kept)
    n_spanned = (n_frames - 1) * HOP + N_FFT
    wave = torch.cat((wave, wave.new_zeros(max(0, n_spanned - n_known))))
    window = torch.hann_window(N_FFT)
    spectrum = torch.fft.rfft(wave[:n_spanned].unfold(0, N_FFT, HOP) * window).T * _LOUDER
    levels = to_levels(spectrum)
    loudest = max(state.loudest, float(levels.sum(dim=0).max()))
    seen = torch.cat((state.levels, levels[:N_BINS]), dim=1)
    wanted = marker.network(seen[None])[0][:, -n_frames:] * gate(levels, torch.tensor(loudest))
    more = torch.zeros_like(spectrum)
    more[:N_BINS] = spectrum[:N_BINS] * (10 ** (wanted * (SPAN_DB / 20)) - 1) / _LOUDER
    pieces = torch.fft.irfft(more.T, N_FFT) * window
    change, weight = (
        torch.cat((x, x.new_zeros(n_frames * HOP))) for x in (state.change, state.weight)
    )
    for number in range(n_frames):
        here = slice(number * HOP, number * HOP + N_FFT)
        change[here] += pieces[number]
        weight[here] += window**2
    n_settled = n_known if is_last else n_frames * HOP
    made = wave[:n_settled] + change[:n_settled] / weight[:n_settled].clamp_min(1e-6)
    n_skipped = min(state.n_silent, n_settled)
    at = n_frames * HOP
    left = WatermarkState(
        wave[at:].clone(), change[at:].clone(), weight[at:].clone(), seen[:, -CONTEXT:].clone(),
        loudest, state.n_silent - n_skipped,
    )  # fmt: skip
    return made[n_skipped:].numpy(), left


class WatermarkStream:
    """Watermarks one utterance as it comes; or not at all, or only when it is whole."""

    def __init__(self, marker: Watermarker | None, *, is_whole: bool) -> None:
        self._marker, self._is_whole = marker, is_whole
        self._state = WatermarkState.start()

    def next(self, samples: NDArray[np.float32], *, is_last: bool) -> NDArray[np.float32]:
        """New samples -> those that may be heard."""
        if self._marker is None:
            return samples
        if self._is_whole:
            return self._marker.apply(samples)
        marked, self._state = watermark_next(self._marker, samples, self._state, is_last=is_last)
        return marked
