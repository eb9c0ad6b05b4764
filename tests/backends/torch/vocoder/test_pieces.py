"""The vocoder's cached layers: pieces are the whole to the bit, and nothing is computed twice that
is certain."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from nightingale.backends.torch import state_bytes
from nightingale.backends.torch.vocoder.fast import FastVocoder
from nightingale.backends.torch.vocoder.model import FILTER_CONTEXT, FrameSlice, Vocoder
from nightingale.backends.torch.vocoder.pieces import Piece, PieceCaches
from nightingale.core import SAMPLES_PER_FRAME
from nightingale.nn import native
from nightingale.nn.convolution import Convolution
from nightingale.nn.fused import amx_library
from tests.backends.torch.vocoder.small import small_mel, small_vocoder

N_FRAMES = 44
SOON = 5  # frames held back by the filter in windows
FilterSlice = Callable[..., tuple[Tensor, tuple[Piece, ...]]]


@pytest.fixture(params=["int8", "int8 filter", pytest.param("amx", marks=pytest.mark.slow)])
def vocoder(request: pytest.FixtureRequest) -> FastVocoder:
    if request.param != "amx":
        library = native.int8()
        if library is None:
            pytest.skip("no kernels in 8 bits run here")
    else:
        request.getfixturevalue("amx")
        library = amx_library()
    head = "filter" if request.param.endswith("filter") else "spectrum"
    return FastVocoder(small_vocoder(head=head), library)


def sound_of(vocoder: Vocoder) -> tuple[Tensor, Tensor]:
    """A mel, and a source: of a filter, pulses and noise."""
    drawn = torch.randn(N_FRAMES * SAMPLES_PER_FRAME, 2, generator=torch.Generator().manual_seed(1))
    is_filter = vocoder.config.head == "filter"
    return small_mel(n_frames=N_FRAMES), 3 * drawn if is_filter else 0.1 * drawn[:, 0]


def slices(ends: list[int], n_held: int) -> Iterator[tuple[FrameSlice, int]]:
    """Of an utterance whose first so many frames are given, one number after the other."""
    begin = 0
    for given in ends:
        is_last = given == N_FRAMES
        end = given if is_last else max(begin, given - n_held)
        if end > begin:
            yield FrameSlice(max(0, begin - FILTER_CONTEXT - 5), begin, end, is_last), given
        begin = end


def in_slices(
    vocoder: Vocoder, ends: list[int], n_held: int, filter_slice: FilterSlice | None = None
) -> Tensor:
    (mel, source), filter_slice = sound_of(vocoder), filter_slice or vocoder.filter_slice
    made, caches = list[Tensor](), tuple[Piece, ...]()
    for at, given in slices(ends, n_held):
        part = source[at.first * SAMPLES_PER_FRAME : given * SAMPLES_PER_FRAME]
        samples, caches = filter_slice(mel[:, at.first : given], part, at, caches)
        made.append(samples)
    return torch.cat(made)


@pytest.mark.parametrize("ends", [[20, 44], [3, 9, 40, 43, 44]])
def test_vocoder_pieces_are_the_whole_to_the_bit(vocoder: FastVocoder, ends: list[int]) -> None:
    made = in_slices(vocoder, ends, FILTER_CONTEXT)
    assert torch.equal(made, vocoder.filter(*sound_of(vocoder)))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ends", "n_held"),
    [([20, 44], SOON), ([16, 30, 44], SOON), ([3, 9, 40, 43, 44], 0), ([*range(1, 13), 44], 0)],
)
def test_cached_vocoder_is_the_one_that_renders_its_context_again(
    vocoder: FastVocoder, ends: list[int], n_held: int
) -> None:
    """`Vocoder.filter_slice`, of which each slice is a whole utterance to the layers."""

    def again(mel: Tensor, source: Tensor, at: FrameSlice, _: Any) -> Any:
        return Vocoder.filter_slice(vocoder, mel, source, at, ())

    cached = in_slices(vocoder, ends, n_held)
    assert torch.equal(cached, in_slices(vocoder, ends, n_held, again))
    assert cached.std() > 0.01


@pytest.mark.parametrize("fault", ["late", "early", "stale"])
def test_a_cache_that_is_one_position_off_is_found(
    vocoder: FastVocoder, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    right = PieceCaches.join
    n_layers = 40 if vocoder.config.head == "spectrum" else 5

    def join(self: PieceCaches, piece: Piece, keep_from: int) -> Piece:
        joined = right(self, piece, keep_from)
        if len(self.kept) == n_layers:  # one of all
            kept = self.kept[-1]
            if fault == "stale":
                self.kept[-1] = replace(kept, x=kept.x.roll(1, 0))
            else:
                shift = 1 if fault == "late" else -1
                first, n_final = kept.first + shift, kept.n_final + shift
                self.kept[-1] = replace(kept, first=first, n_final=n_final)
        return joined

    sound = vocoder.filter(*sound_of(vocoder))
    monkeypatch.setattr(PieceCaches, "join", join)
    try:
        made = in_slices(vocoder, [20, 44], FILTER_CONTEXT)
    except (AssertionError, RuntimeError):
        return  # positions are missing, or lengths do not fit
    assert not torch.equal(made, sound)


def test_uncertain_positions_alone_are_computed_again(
    vocoder: FastVocoder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Positions of all convolutions behind the first stage, by frames."""
    right, n_made = Convolution.forward, [0]

    def forward(self: Convolution, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        made = right(self, x, *args, **kwargs)
        n_made[0] += len(made)
        return made

    monkeypatch.setattr(Convolution, "forward", forward)

    def positions(ends: list[int], n_held: int) -> int:
        n_made[0] = 0
        in_slices(vocoder, ends, n_held)
        return n_made[0]

    whole = positions([N_FRAMES], SOON)
    frame = whole / N_FRAMES
    is_filter = vocoder.config.head == "filter"
    assert positions([30, 44], FILTER_CONTEXT) < whole + (3 if is_filter else 1) * frame
    n_again = (positions([30, 44], SOON) - whole) / frame  # were 25
    low, high = (3, 8) if is_filter else (7, 10)
    assert low < n_again < high


def test_vocoder_caches_survive_as_bytes_and_are_not_changed(vocoder: FastVocoder) -> None:
    mel, source = sound_of(vocoder)
    _, caches = vocoder.filter_slice(
        mel[:, :20], source[: 20 * SAMPLES_PER_FRAME], FrameSlice(0, 0, 15, is_last=False), ()
    )
    copied = state_bytes.unpack(state_bytes.pack(caches))
    last = FrameSlice(0, 15, N_FRAMES, is_last=True)
    one, two, three = (
        vocoder.filter_slice(mel, source, last, kept)[0] for kept in (caches, copied, caches)
    )
    assert torch.equal(one, two)
    assert torch.equal(one, three)
