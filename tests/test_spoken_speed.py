"""Speech at other speeds, from Fledgling: bytes, length, words and pitch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from nightingale import Nightingale
from nightingale.audio.files import resample
from nightingale.backends.base import WindowJob
from nightingale.backends.torch import decoder as torch_decoder
from nightingale.core import SAMPLES_PER_FRAME, SAMPLES_PER_SECOND, AudioChunk, Plan
from nightingale.measure.pitch import pitch_ratio
from nightingale.windowing import token_windows
from tests.tiny_release import make_release

pytestmark = pytest.mark.slow

SPEEDS = (0.5, 0.8, 1.25, 2.0)
TEXT = "It rained all day. We ran."
SENTENCE = "It rained all day."


@pytest.fixture(scope="module")
def live() -> Nightingale:
    return Nightingale.load("fledgling", plan=Plan.named("live"))


@pytest.fixture(scope="module")
def exact() -> Nightingale:
    """Nothing is trimmed or watermarked: samples are those of the vocoder."""
    return Nightingale.load("fledgling", plan="fast", watermark=False)


@pytest.mark.parametrize("speed", SPEEDS)
def test_say_is_the_concatenation_of_stream_at_every_speed(live: Nightingale, speed: float) -> None:
    said = live.say(TEXT, seed=3, speed=speed)
    speech = live.stream(TEXT, seed=3, speed=speed)
    chunks = [chunk.samples for chunk in speech]
    assert len(chunks) > 2
    assert np.concatenate(chunks).tobytes() == said.samples.tobytes()
    assert speech.speed == speed


def test_a_stream_is_resumed_at_its_speed(live: Nightingale) -> None:
    speech, heard = live.stream(TEXT, seed=3, speed=0.8), list[AudioChunk]()
    while speech.checkpoint is None:
        heard.append(next(speech))
    behind = speech.checkpoint
    rest = np.concatenate([chunk.samples for chunk in [*heard, *speech]])
    resumed = live.stream(TEXT, seed=3, speed=0.8, resume=behind)
    sound = np.concatenate([chunk.samples for chunk in resumed])
    assert len(sound)
    assert np.array_equal(sound, rest[behind.joined.n_samples :])


def test_speed_1_never_enters_the_interpolation(
    live: Nightingale, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = live.say(SENTENCE, seed=1).samples
    monkeypatch.delattr(torch_decoder, "pace_frames")
    assert live.say(SENTENCE, seed=1, speed=1.0).samples.tobytes() == plain.tobytes()
    with pytest.raises(NameError):
        live.say(SENTENCE, seed=1, speed=1.01)


def test_speed_keeps_pitch_and_scales_length_and_words(exact: Nightingale) -> None:
    plain = exact.stream(SENTENCE, seed=1)
    sound = np.concatenate([chunk.samples for chunk in plain])
    for speed in SPEEDS:
        speech = exact.stream(SENTENCE, seed=1, speed=speed)
        changed = np.concatenate([chunk.samples for chunk in speech])
        assert abs(len(changed) - len(sound) / speed) <= SAMPLES_PER_FRAME
        for word, known in zip(speech.words, plain.words, strict=True):
            assert word.text == known.text
            assert word.start_s == pytest.approx(known.start_s / speed, abs=1e-9)
            assert word.end_s == pytest.approx(known.end_s / speed, abs=1e-9)
        assert pitch_ratio(changed, sound, SAMPLES_PER_SECOND, speed) == pytest.approx(1, abs=0.02)
        # what a resampling would do is not taken for that
        planted = resample(sound, round(SAMPLES_PER_SECOND * speed), SAMPLES_PER_SECOND)
        found = pitch_ratio(planted, sound, SAMPLES_PER_SECOND, speed)
        assert found is None or abs(found - 1) > 0.15


def test_the_language_is_detected_when_asked(exact: Nightingale) -> None:
    found = exact.say(SENTENCE, seed=1, language="auto")
    plain = exact.say(SENTENCE, seed=1)
    assert plain.language is None
    assert found.language is not None
    assert found.language[0] == "en"
    assert found.samples.tobytes() == plain.samples.tobytes()


def test_prosody_rate_is_the_speed_of_what_it_encloses(exact: Nightingale) -> None:
    marked = exact.say(f'<speak><prosody rate="125%">{SENTENCE}</prosody></speak>', seed=3)
    assert marked.samples.tobytes() == exact.say(SENTENCE, seed=3, speed=1.25).samples.tobytes()
    assert marked.unspoken == ()


def test_a_voice_has_a_speed_of_its_own(exact: Nightingale) -> None:
    voice = replace(exact.components.voice, speed=0.8)
    slow = exact.say(SENTENCE, voice, seed=1).samples
    assert slow.tobytes() == exact.say(SENTENCE, seed=1, speed=0.8).samples.tobytes()


@pytest.fixture(scope="module")
def dropping(tmp_path_factory: pytest.TempPathFactory) -> list[Nightingale]:
    """A family that drops the sound of its last token, whole and in windows."""
    folder = tmp_path_factory.mktemp("release")
    make_release(folder, "multilingual-hi")
    options = {"home": folder, "device": "cpu", "watermark": False}
    return [Nightingale.load(folder, plan=plan, **options) for plan in ("reference", "live")]  # type: ignore[arg-type]


def n_decoded(tts: Nightingale, codes: list[int], speed: float) -> int:
    decoder = tts.components.loaded.wave_decoder
    state, n_samples = decoder.start(tts.components.voice.flow, 0, speed), 0
    for window in filter(None, token_windows(codes, tts.components.plan.window_sizes)):
        (made,) = decoder.decode([WindowJob(window, state)])
        state, n_samples = made.state, n_samples + len(made.samples)
    return n_samples


def test_length_is_exact_where_the_last_token_is_dropped(dropping: list[Nightingale]) -> None:
    codes = [int(code) for code in np.random.default_rng(0).integers(0, 6000, 40)]
    for tts in dropping:
        plain = n_decoded(tts, codes, 1.0)
        assert plain == 2 * 39 * SAMPLES_PER_FRAME
        for speed in (0.8, 2.0):
            assert abs(n_decoded(tts, codes, speed) - plain / speed) <= SAMPLES_PER_FRAME / 2
