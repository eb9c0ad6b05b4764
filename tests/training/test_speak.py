"""Who says what: the script of each voice."""

from __future__ import annotations

from itertools import islice

from training.corpus import DEVELOPMENT_VOICES, EXTRA
from training.speak import CAST, N_HELD_OUT, N_MIXED, extra_cast, script
from training.texts import Text

TEXTS = [
    *(Text(f"train-{i}", "The cat sat.", "book", "train") for i in range(2000)),
    *(Text(f"drill-{i}", "Is it this, that, these, or those?", "drill", "train") for i in range(9)),
    *(Text(f"held_out-{i}", "The dog sat.", "book", "held_out") for i in range(50)),
    *(Text(f"short-{i}", "Yes.", "short", "short") for i in range(50)),
]


def test_no_two_voices_learn_from_the_same_sentence() -> None:
    said = [text.id for voice in CAST for text, _ in script(voice, TEXTS) if text.split == "train"]
    assert len(set(said)) == len(said) == 2000


def test_held_out_sentences_come_early_and_are_marked() -> None:
    lines = list(islice(script("am_puck", TEXTS), 5 * N_HELD_OUT))
    assert [split for text, split in lines if text.split == "held_out"] == ["held_out"] * N_HELD_OUT
    assert {split for text, split in lines if text.split == "train"} == {"train"}


def test_a_held_out_voice_has_nothing_to_train_on() -> None:
    for voice in ("af_sarah", "held_mix"):
        assert {split for _, split in script(voice, TEXTS)} == {"held_out"}


def test_a_script_is_the_same_every_time_so_that_it_can_be_resumed() -> None:
    assert list(script("mix_a", TEXTS)) == list(script("mix_a", TEXTS))


def test_extra_voices_are_the_other_styles_and_mixtures_and_none_of_a_held_out_voice() -> None:
    held_out = {style for cast in CAST.values() if cast.held_out for style in cast.styles}
    other = {f"af_other{number}" for number in range(9)}
    cast = extra_cast([*CAST, *held_out, *other])
    assert len(cast) == len(other) + N_MIXED
    assert {c.styles[0] for c in cast.values() if len(c.styles) == 1} == other
    assert not held_out & {style for c in cast.values() for style in c.styles}
    assert all(abs(sum(c.weights or ()) - 1) < 1e-9 for c in cast.values())
    assert set(DEVELOPMENT_VOICES) < set(cast) and all(name.startswith(EXTRA) for name in cast)
    assert cast == extra_cast(sorted(other | held_out | set(CAST)))
