"""Mel frames at another speed: pieces are the whole, and the length is what was asked."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nightingale.core import Options
from nightingale.errors import OptionError
from nightingale.measure.pitch import pitch_contour, pitch_ratio
from nightingale.speaking_rate import Frames, RateState, limited_speed, n_paced, pace_frames
from nightingale.speech import SpeechState, SpeechStream
from nightingale.text.split import TextPart
from nightingale.text.structure import Break, pause_samples
from nightingale.text.words import Span, rest

SPEEDS = st.floats(0.5, 2.0)
RATE = 24_000


def frames_of(n: int, n_mel: int = 4) -> Frames:
    return np.random.default_rng(n).standard_normal((n_mel, n), np.float32)


def in_pieces(frames: Frames, cuts: list[int], speed: float) -> Frames:
    state, given_ = RateState(speed), []
    edges = [0, *sorted(cut % (frames.shape[1] + 1) for cut in cuts), frames.shape[1]]
    for start, end in pairwise(edges):
        piece, state = pace_frames(frames[:, start:end], state, is_last=end == frames.shape[1])
        given_.append(piece)
        if end == frames.shape[1]:
            break
    return np.concatenate(given_, axis=1)


def whole(frames: Frames, speed: float) -> Frames:
    return pace_frames(frames, RateState(speed), is_last=True)[0]


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 200), st.lists(st.integers(0, 1000), max_size=12), SPEEDS)
def test_speed_in_pieces_is_the_whole_to_the_bit(n: int, cuts: list[int], speed: float) -> None:
    frames = frames_of(n)
    assert in_pieces(frames, cuts, speed).tobytes() == whole(frames, speed).tobytes()


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 5000), SPEEDS)
def test_speed_gives_the_length_that_was_asked_for(n: int, speed: float) -> None:
    found = whole(np.zeros((1, n), np.float32), speed).shape[1]
    assert found == n_paced(n, speed) >= 1
    assert abs(found - n / speed) <= 0.5 + 1e-9


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 300), SPEEDS)
def test_speed_maps_times_linearly(n: int, speed: float) -> None:
    """A ramp of time stays one: frame j shows the time (j + 1/2) x speed."""
    ramp = np.arange(n, dtype=np.float32)[None] + 0.5
    wanted = ((np.arange(n_paced(n, speed)) + 0.5) * speed).clip(0.5, n - 0.5)
    assert whole(ramp, speed)[0] == pytest.approx(wanted, abs=1e-3)


def test_speed_counted_from_each_piece_is_found() -> None:
    """The planted fault: what CosyVoice refuses to stream, and others do wrongly."""
    frames = frames_of(60)
    pieces = [whole(frames[:, at : at + 16], 1.3) for at in range(0, 60, 16)]
    assert np.concatenate(pieces, axis=1).tobytes() != whole(frames, 1.3).tobytes()


def test_speed_1_is_a_bypass() -> None:
    frames = frames_of(7)
    given_, state = pace_frames(frames, RateState(1.0), is_last=False)
    assert given_ is frames
    assert (state.n_in, state.n_out) == (7, 7)


@pytest.mark.parametrize("speed", [0.49, 2.01, 0.0, -1.0, math.nan, math.inf, "fast", True])
def test_speed_out_of_range_is_named(speed: object) -> None:
    with pytest.raises(OptionError, match="speed is"):
        Options(speed=speed)  # type: ignore[arg-type]


def test_speeds_of_voice_request_and_markup_are_multiplied_and_limited() -> None:
    assert limited_speed(0.8, 1.25) == 1.0
    assert limited_speed(0.5, 0.6, 1.0) == 0.5
    assert limited_speed(2.0, 1.5) == 2.0


@pytest.mark.parametrize("speed", [0.5, 0.8, 1.25, 2.0])
def test_word_times_scale_with_speed(speed: float) -> None:
    def times(speed: float) -> list[tuple[float, float]]:
        state = SpeechState(speed=speed)
        state.open_part([Span("Go", 1), Span("home", 4)], [0, 1, 2, 3, 4, 5, 6])
        return [(word.start_s, word.end_s) for word in SpeechStream(state, iter(())).words]

    assert times(speed) == [(start / speed, end / speed) for start, end in times(1.0)]


def test_pauses_scale_with_speed() -> None:
    plain, slow = pause_samples(Options()), pause_samples(Options(), 0.5)
    assert plain == pause_samples(Options(), 1.0)
    assert plain[Break.SENTENCE] == 350 * 24
    assert all(slow[kind] == 2 * n for kind, n in plain.items())


def test_what_is_left_of_a_part_keeps_its_speed() -> None:
    words = [Span("Go", 1), Span("home.", 4)]
    left = rest(TextPart("Go home.", speed=0.8), words, 5)
    assert left == TextPart("home.", Break.CLAUSE, speed=0.8)


def vowel(seconds: float, hz: float = 150.0) -> Frames:
    """A voice that rises and falls."""
    time_s = np.arange(int(seconds * RATE)) / RATE
    phase = 2 * np.pi * np.cumsum(hz + 0.2 * hz * np.sin(4 * time_s)) / RATE
    harmonics = np.arange(1, 8)[:, None]
    wave: Frames = (np.sin(harmonics * phase) / harmonics / 10).sum(0).astype(np.float32)
    return wave


def test_pitch_is_measured_and_a_planted_resampling_is_found() -> None:
    sound = vowel(1.0)
    contour = pitch_contour(sound, RATE)
    assert np.isfinite(contour).mean() > 0.8
    assert float(np.nanmedian(contour)) == pytest.approx(165, rel=0.12)
    for speed in (0.98, 1.25):
        places = np.arange(0, len(sound) - 1, speed)
        resampled = np.interp(places, np.arange(len(sound)), sound).astype(np.float32)
        assert pitch_ratio(resampled, sound, RATE, speed) == pytest.approx(speed, abs=0.003)
    assert pitch_ratio(sound, sound, RATE) == pytest.approx(1.0)


def test_noise_and_silence_have_no_pitch() -> None:
    noise = np.random.default_rng(0).standard_normal(RATE // 2, np.float32) / np.float32(10)
    assert np.isfinite(pitch_contour(noise, RATE)).mean() < 0.05
    assert not np.isfinite(pitch_contour(np.zeros(RATE // 2, np.float32), RATE)).any()
    assert pitch_ratio(noise, noise, RATE) is None
