"""`nightingale verify --judges`, with the real judges."""

from __future__ import annotations

from typing import Any

import pytest

from nightingale.audio.clip import Audio
from nightingale.measure import texts
from nightingale.measure.quality import Judge
from nightingale.measure.verify import Verifier
from nightingale.pipeline import Nightingale

pytestmark = pytest.mark.quality


class OtherWords(Nightingale):
    def say(self, text: str, *args: Any, **options: Any) -> Audio:
        return super().say(f"Something else, not {len(text)}.", *args, **options)


def test_plans_and_seeds_are_judged_and_every_clip_is_counted(judge: Judge) -> None:
    sentences, steps = texts.read("held_out", 3), list[tuple[str, int]]()
    reference = Nightingale.load("fledgling", plan="reference", watermark=False)
    verifier = Verifier(
        reference,
        sentences,
        judge=judge,
        progress=lambda step, n_done: steps.append((step, n_done)),
    )
    verdicts = [verifier.verify(tts) for tts in (reference, OtherWords(reference.components))]
    own, other = (verdict.facts()["word error rate"] for verdict in verdicts)
    (seeds,) = verifier.spread(1)
    assert own is not None
    assert other is not None
    assert own < 0.3
    assert other > 0.8
    assert seeds.words.value < 0.3
    name = verdicts[0].plan
    names = ["speaking the reference", *[name, f"judging {name}"] * 2, "seeds, set 1"]
    assert steps == [(step, number) for step in names for number in range(1, len(sentences) + 1)]
