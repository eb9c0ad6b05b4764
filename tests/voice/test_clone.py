"""From a recording to a voice: which piece goes where, and what is refused or warned of."""

from __future__ import annotations

import dataclasses
import io

import numpy as np
import pytest
import soundfile
import torch

from nightingale.audio.files import read, resample
from nightingale.audio.loudness import at_loudness
from nightingale.audio.mel import flow_mel
from nightingale.core import Family, Voice
from nightingale.errors import AudioError
from nightingale.voice.clone import clone
from nightingale.voice.inspect import Wave, inspect
from nightingale.voice.level import Level
from tests.audio.corpus import buzz
from tests.voice.tiny import tiny_encoders

FAMILIES: list[Family] = ["english", "multilingual", "turbo", "nano"]


def tensors_of(voice: Voice) -> list[torch.Tensor]:
    flow = voice.flow
    arrays = (voice.t3.speaker, voice.t3.tokens, flow.tokens, flow.mel, flow.xvector)
    return [torch.from_numpy(array) for array in arrays]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "n_samples", "n_prompt", "n_tokens", "n_frames"),
    [
        ("english", 24_001, 25, 25, 50),
        ("english", 24_480, 26, 25, 51),  # the odd frame stays
        ("english", 24_960, 26, 26, 52),
        ("english", 24_959, 26, 25, 51),
        ("multilingual", 150_000, 150, 156, 312),
        ("turbo", 150_000, 157, 156, 312),
        ("english", 480_000, 150, 250, 500),
        ("nano", 480_000, 375, 250, 500),
    ],
)
def test_each_reader_gets_its_piece(
    family: Family, n_samples: int, n_prompt: int, n_tokens: int, n_frames: int
) -> None:
    voice = clone(buzz(20.0)[:n_samples], tiny_encoders(), family)
    assert voice.t3.tokens.shape == (n_prompt,)
    assert voice.flow.tokens.shape == (n_tokens,)
    assert voice.flow.mel.shape == (n_frames, 80)
    assert voice.t3.speaker.shape == (256,)
    assert voice.flow.xvector.shape == (192,)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "from_second", "changed"),
    [  # speaker, prompt tokens, flow tokens, mel, x-vector
        ("english", 5, [True, True, True, True, True]),
        ("english", 7, [True, False, True, True, True]),
        ("english", 11, [True, False, False, False, False]),
    ],
)
def test_what_comes_later_changes_only_who_reads_that_far(
    family: Family, from_second: int, changed: list[bool]
) -> None:
    wave = buzz(16.0)
    other = wave.copy()
    other[from_second * 24_000 :] = buzz(16.0, seed=4)[from_second * 24_000 :]
    encoders = tiny_encoders()
    pairs = zip(
        tensors_of(clone(wave, encoders, family)),
        tensors_of(clone(other, encoders, family)),
        strict=True,
    )
    assert [not torch.equal(one, two) for one, two in pairs] == changed


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_the_same_bytes_make_the_same_voice_to_the_bit(family: Family) -> None:
    file = io.BytesIO()
    soundfile.write(file, buzz(6.0, 44_100), 44_100, format="FLAC")
    voices = []
    for _ in range(2):
        torch.rand(1)  # the global generator has no say
        voices.append(clone(read(file.getvalue(), 24_000), tiny_encoders(), family))
    for one, two in zip(*map(tensors_of, voices), strict=True):
        assert torch.equal(one, two)


def test_two_threads_make_the_same_tokens_and_nearly_the_same_numbers() -> None:
    wave, encoders = buzz(1.2), tiny_encoders()
    alone = clone(wave, encoders, "english")
    torch.set_num_threads(2)
    try:
        together = clone(wave, encoders, "english")
    finally:
        torch.set_num_threads(1)
    worst = 0.0
    for one, two in zip(tensors_of(alone), tensors_of(together), strict=True):
        if one.is_floating_point():
            worst = max(worst, float((one - two).abs().max()))
        else:
            assert torch.equal(one, two)
    print(f"1 and 2 threads differ by {worst:.1e} at most")
    assert worst < 1e-5


@pytest.mark.slow
def test_turbo_hears_every_recording_at_the_same_loudness_and_english_as_it_is() -> None:
    wave, encoders = buzz(6.0), tiny_encoders()
    loud, quiet = (
        clone(gain * wave, encoders, "turbo") for gain in (np.float32(2), np.float32(0.25))
    )
    assert np.allclose(loud.flow.mel, quiet.flow.mel, atol=1e-3)
    expected = flow_mel(torch.from_numpy(at_loudness(wave, 24_000, -27.0)))
    assert np.allclose(loud.flow.mel, expected.numpy(), atol=1e-3)
    as_it_is = clone(wave, encoders, "english")
    assert np.array_equal(as_it_is.flow.mel, flow_mel(torch.from_numpy(wave)).numpy())


def test_the_prompt_is_heard_through_soxr_and_the_flow_through_the_short_sinc() -> None:
    wave, encoders = buzz(3.0), tiny_encoders()
    voice = clone(wave, encoders, "english")
    by_soxr = encoders.tokenizer.encode(torch.from_numpy(resample(wave, 24_000, 16_000))).numpy()
    assert np.array_equal(voice.t3.tokens, by_soxr)
    assert not np.array_equal(voice.flow.tokens, by_soxr)


def test_a_voice_lives_on_the_host_and_can_be_saved() -> None:
    for tensor in tensors_of(clone(buzz(2.0), tiny_encoders(), "english")):
        assert tensor.device.type == "cpu"
        assert not tensor.requires_grad
        assert tensor.is_contiguous()


@pytest.mark.parametrize(
    ("wave", "family", "reason"),
    [
        (buzz(0.99), "english", "more than 1 s: record about 10 s"),
        (buzz(0.0), "english", r"0\.0 s"),
        (buzz(5.0), "turbo", "turbo needs more than 5 s"),
        (buzz(4.0), "nano", "nano needs more than 5 s"),
        (np.zeros(48_000, np.float32), "english", "silent"),
        (1e-5 * buzz(3.0), "english", "silent"),
        (np.full(48_000, np.nan, np.float32), "english", "no numbers"),
        (np.zeros((48_000, 2), np.float32), "english", "float32, not"),
        (np.zeros(48_000), "english", "float64"),
    ],
)
def test_what_no_voice_can_be_made_of_is_refused(wave: Wave, family: Family, reason: str) -> None:
    for refuse in (lambda: clone(wave, tiny_encoders(), family), lambda: inspect(wave, family)):
        with pytest.raises(AudioError, match=reason):
            refuse()


def test_an_encoder_that_finds_no_number_is_not_saved_as_a_voice() -> None:
    encoders = tiny_encoders()
    encoders.speaker.proj.weight.zero_()
    encoders.speaker.proj.bias.fill_(-1.0)  # nothing passes the rectifier, and nothing has no norm
    with pytest.raises(AudioError, match="try another"):
        clone(buzz(2.0), encoders, "english")


def clipped(wave: Wave) -> Wave:
    return np.clip(8 * wave, -1, 1)


def noisy(wave: Wave) -> Wave:
    noise = np.random.default_rng(0).standard_normal(wave.size)
    return (wave + 0.03 * noise).astype(np.float32)


def lonely(wave: Wave) -> Wave:
    return np.concatenate((wave, np.zeros(2 * wave.size, np.float32)))


@pytest.mark.parametrize(
    ("wave", "warnings"),
    [
        (buzz(8.0), []),
        (buzz(2.0), ["2.0 s is short"]),
        (clipped(buzz(8.0)), ["clipped"]),
        (noisy(buzz(8.0)), ["noise"]),
        (lonely(buzz(8.0)), ["of it is silence"]),
        (lonely(clipped(buzz(0.9))), ["2.7 s is short", "clipped", "silence"]),
    ],
)
def test_a_person_is_told_what_is_wrong(wave: Wave, warnings: list[str]) -> None:
    facts = inspect(wave, "english").warnings
    assert len(facts) == len(warnings), facts
    assert all(part in text for part, text in zip(warnings, facts, strict=True))


@pytest.mark.parametrize(
    ("seconds", "family", "summary"),
    [
        (
            20.0,
            "english",
            "20.0 s of recording (timbre from the first 10.0 s, speaking style "
            "from the first 6.0 s)",
        ),
        (
            20.0,
            "turbo",
            "20.0 s of recording (timbre from the first 10.0 s, speaking style "
            "from the first 15.0 s)",
        ),
        (
            3.5,
            "multilingual",
            "3.5 s of recording (timbre from the first 3.5 s, speaking style from the first 3.5 s)",
        ),
    ],
)
def test_a_person_is_told_what_is_used_for_what(
    seconds: float, family: Family, summary: str
) -> None:
    report = inspect(buzz(seconds), family)
    assert report.summary == f"{summary}, loudness kept"
    levelled = dataclasses.replace(report, level=Level(-31.2, -27, 4.2), output_gain_db=-1.5)
    assert levelled.summary == (
        f"{summary}, gain +4.2 dB applied (recording -31.2 LUFS, target -27.0), output gain -1.5 dB"
    )
