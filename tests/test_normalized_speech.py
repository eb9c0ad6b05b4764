"""Figures are spoken as words, and the listener hears of them as they were written."""

from __future__ import annotations

import numpy as np
import pytest

from nightingale import Nightingale

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def model() -> Nightingale:
    return Nightingale.load("fledgling", plan="live")


def test_a_written_amount_is_one_word_for_timings_and_for_cancel(model: Nightingale) -> None:
    speech = model.stream("We paid 12.50 USD today.", seed=3)
    for _ in speech:
        pass
    assert [word.text for word in speech.words] == ["We", "paid", "12.50 USD", "today."]
    amount = speech.words[2]
    assert amount.end_s - amount.start_s > speech.words[0].end_s - speech.words[0].start_s
    inside = speech.word_at((amount.start_s + amount.end_s) / 2)
    assert inside == amount


def test_normalization_changes_only_texts_with_figures(model: Nightingale) -> None:
    def say(text: str, normalization: str) -> bytes:
        return model.say(text, seed=3, normalization=normalization).samples.tobytes()

    assert say("It is me, Anna.", "auto") == say("It is me, Anna.", "off")
    spelled = say("We paid twelve dollars and fifty cents today.", "off")
    assert say("We paid $12.50 today.", "auto") == spelled


def test_figures_in_arriving_text_are_those_of_the_whole(model: Nightingale) -> None:
    text = "We paid $12.50 on May 3rd, No. 5 was 25 kg."
    streams = [model.stream([text], seed=3), model.stream(iter(text), seed=3)]
    whole, pieces = (np.concatenate([c.samples for c in stream]) for stream in streams)
    assert np.array_equal(whole, pieces)
