"""Mark-up in the sound: who speaks, and how long the pauses are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from nightingale import Checkpoint, Nightingale, Voice
from nightingale.audio.audible import first_audible, last_audible
from nightingale.core import SAMPLES_PER_SECOND, AudioChunk
from nightingale.errors import VoiceError
from nightingale.speech import SpeechStream
from nightingale.voice.library import VoiceLibrary
from nightingale.voice.metadata import VoiceMetadata

pytestmark = pytest.mark.slow

TEXT = (
    "[pause:200ms][voice:anna]Yes.[/voice] [pause:500ms] <voice name='bob'>No, <break time='80ms'/>"
    " not now.</voice>\n\n[pause:1.2s] Come in. [pause:300ms]"
)
PAUSES_MS = [200, 500, 80, 1200, 300]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Nightingale:
    home = tmp_path_factory.mktemp("home")
    return Nightingale.load("fledgling", plan="live", decoder="meanflow", home=home)


@pytest.fixture(scope="module")
def voices(model: Nightingale) -> dict[str, Voice]:
    """Two more that differ: by their tokens, and by their loudness."""
    own = model.components.voice
    shifted = replace(own.t3, speaker=np.roll(own.t3.speaker, 1))
    return {"anna": replace(own, t3=shifted), "bob": replace(own, gain_db=-6.0)}


def collected(speech: SpeechStream) -> tuple[NDArray[np.float32], list[AudioChunk]]:
    chunks = list(speech)
    return np.concatenate([chunk.samples for chunk in chunks]), chunks


def measured_ms(samples: NDArray[np.float32], chunks: list[AudioChunk]) -> list[float]:
    """From the last audible sample before each pause to the first behind it."""
    at, found = 0, []
    for chunk in chunks:
        if chunk.is_pause:
            last, first = last_audible(samples[:at]), first_audible(samples[at:])
            start = -1 if last is None else last
            end = len(samples) if first is None else at + first
            found.append(1e3 * (end - start - 1) / SAMPLES_PER_SECOND)
        at += len(chunk.samples)
    return found


def test_a_dialogue_of_three_voices_has_the_pauses_that_were_asked_for(
    model: Nightingale, voices: dict[str, Voice]
) -> None:
    speech = model.stream(TEXT, seed=5, voices=voices)
    samples, chunks = collected(speech)
    assert measured_ms(samples, chunks) == pytest.approx(PAUSES_MS, abs=5)
    # a detector that can fail: another pause is not found to be right
    assert measured_ms(samples, chunks) != pytest.approx([200, 500, 80, 1210, 300], abs=5)
    assert [word.text for word in speech.words] == ["Yes.", "No,", "not", "now.", "Come", "in."]
    assert not speech.unspoken
    whole = model.say(TEXT, seed=5, voices=voices)
    assert np.array_equal(whole.samples, samples)
    plain = model.say("Yes. No, not now.\n\nCome in.", seed=5)
    assert not np.array_equal(plain.samples, samples)
    swapped = {"anna": voices["bob"], "bob": voices["anna"]}
    assert not np.array_equal(model.say(TEXT, seed=5, voices=swapped).samples, samples)


def test_a_dialogue_goes_on_from_a_checkpoint(model: Nightingale, voices: dict[str, Voice]) -> None:
    speech, kept = model.stream(TEXT, seed=5, voices=voices), list[Checkpoint]()
    samples = []
    for chunk in speech:
        samples.append(chunk.samples)
        if speech.checkpoint is not None and speech.checkpoint not in kept:
            kept.append(speech.checkpoint)
    whole, behind = np.concatenate(samples), kept[1]
    again, _ = collected(model.stream(TEXT, seed=5, voices=voices, resume=behind))
    assert np.array_equal(again, whole[behind.joined.n_samples :])


def test_voices_are_checked_before_anything_is_spoken(
    model: Nightingale, voices: dict[str, Voice]
) -> None:
    library = VoiceLibrary(Path(model.voices._folder))
    library.save("anna", voices["anna"], VoiceMetadata("fledgling"))
    with pytest.raises(VoiceError, match="no voice 'carla'"):
        model.stream("[voice:anna]Yes.[/voice] [voice:carla]No.")
    named = model.say("[voice:anna]Yes.", seed=5).samples
    assert np.array_equal(named, model.say("Yes.", "anna", seed=5).samples)
    assert np.array_equal(
        model.say("[voice:default]Yes.", seed=5).samples, model.say("Yes.", seed=5).samples
    )


def test_tags_that_are_not_followed_are_reported_not_spoken(model: Nightingale) -> None:
    speech = model.stream("<emphasis>Yes.</emphasis> [laugh]", seed=5)
    samples, _ = collected(speech)
    assert speech.unspoken == ("<emphasis>", "[laugh]")
    assert np.array_equal(samples, model.say("Yes.", seed=5).samples)
