"""The mark on sound as it comes: seamless, near to that of a finished clip, whatever the pieces.

That Perth's detector finds it is shown in tests/parity.
"""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from nightingale.audio.streaming_watermark import HOP, N_FFT, WatermarkState, watermark_next
from nightingale.audio.watermark import Watermarker

Wave = NDArray[np.float32]


@pytest.fixture(scope="module")
def marker() -> Watermarker:
    return Watermarker()


def hum(n_samples: int) -> Wave:
    times = np.arange(n_samples) / 24_000
    pitch = 130 + 30 * np.sin(3 * times)
    phase = 2 * np.pi * np.cumsum(pitch) / 24_000
    wave = sum(np.sin(k * phase) / k for k in range(1, 20))
    return (0.1 * wave * (1.2 + np.sin(9 * times))).astype(np.float32)


def watermarked(marker: Watermarker, wave: Wave, sizes: list[int]) -> list[Wave]:
    state, pieces, at = WatermarkState.start(), [], 0
    for number, size in enumerate(sizes, start=1):
        is_last = number == len(sizes)
        piece, state = watermark_next(marker, wave[at : at + size], state, is_last=is_last)
        pieces.append(piece)
        at += size
    return pieces


@pytest.mark.parametrize("n_samples", [1, 100, 5000, 24_001])
def test_as_many_samples_come_out_as_go_in(marker: Watermarker, n_samples: int) -> None:
    wave = hum(n_samples)
    for sizes in ([n_samples], [n_samples // 2, n_samples - n_samples // 2], [n_samples, 0]):
        assert sum(map(len, watermarked(marker, wave, sizes))) == n_samples


def test_no_more_than_a_window_is_held_back(marker: Watermarker) -> None:
    state, n_in, n_out = WatermarkState.start(), 0, 0
    wave = hum(24_000)
    for size in (480, 3000, 1, 239, 5000, 960):
        piece, state = watermark_next(marker, wave[n_in : n_in + size], state, is_last=False)
        n_in, n_out = n_in + size, n_out + len(piece)
        assert 0 <= n_in - n_out <= N_FFT


@pytest.mark.slow
def test_it_is_the_mark_of_a_finished_clip_but_near_the_ends_of_pieces(marker: Watermarker) -> None:
    wave = hum(48_000)
    finished = marker.apply(wave)

    def away(sizes: list[int], at: slice = slice(None)) -> float:
        live = np.concatenate(watermarked(marker, wave, sizes))
        return float((live - finished)[at].std() / (finished - wave)[at].std())

    assert away([48_000], slice(6000, 42_000)) < 2e-3
    assert away([9600, 14_400, 24_000]) < 0.06
    assert away([960] * 50) < 0.25


def test_silence_stays_silence(marker: Watermarker) -> None:
    made = np.concatenate(watermarked(marker, np.zeros(9000, np.float32), [4000, 5000]))
    assert np.abs(made).max() < 1e-6


def test_a_seam_is_like_any_other_place(marker: Watermarker) -> None:
    wave = hum(96_000)
    pieces = watermarked(marker, wave, [4800 + 7 * k for k in range(20)])
    live = np.concatenate(pieces)
    seams = np.cumsum([len(piece) for piece in pieces])[:-1]
    bends = np.abs(np.diff(live - wave[: len(live)], 2))
    at_seams = bends[seams[seams < len(bends)] - 1]
    assert at_seams.mean() < 2 * bends.mean()
    assert min(map(len, pieces[1:])) > HOP
