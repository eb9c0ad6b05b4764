"""Small versions of the proofs in benchmarks/streaming, with the model that comes along."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Iterator

import numpy as np
import pytest

from benchmarks.streaming import cancels, flat, identity, pauses, seams
from benchmarks.streaming.nasty import Nasty, judge, letter_edits, nasty, summary
from nightingale.measure import texts
from nightingale.pipeline import Nightingale

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def tts(tmp_path_factory: pytest.TempPathFactory) -> Nightingale:
    home = tmp_path_factory.mktemp("home")
    return Nightingale.load("fledgling", home=home, device="cpu", plan="live", decoder="meanflow")


@pytest.mark.slow
def test_a_request_has_one_sound_for_any_listener(tts: Nightingale) -> None:
    said = texts.read("short", 2)
    found = identity.identity(tts, said, n_runs=16)
    assert {text: len(sounds) for text, sounds in found.items()} == dict.fromkeys(said, 1)
    assert len({sound for sounds in found.values() for sound in sounds}) == len(said)


@pytest.mark.slow
def test_seams_are_like_other_places_and_faults_are_not(tts: Nightingale) -> None:
    speaker = seams.Speaker(tts, texts.read("held_out", 12))
    assert min(seams.examine(speaker).p_values().values()) > 0.001
    # Noise of another seed is rendered once more, and found at fewer seams.
    for fault, n_seams in (("sample", math.inf), ("frame", math.inf), ("noise", 90)):
        assert min(seams.examine(speaker, fault, n_seams).p_values().values()) < 0.001, fault


BOOK = "# One\n\nIt was late already. She went home.\n\nNobody asked why.\n- Milk.\n- Some bread."


@pytest.mark.slow
@pytest.mark.parametrize("plan", ["reference", "live"])
def test_clips_end_softly_and_pause_as_their_text_asks(plan: str) -> None:
    tts = Nightingale.load("fledgling", device="cpu", plan=plan, decoder="meanflow")
    found = pauses.examine(tts, [BOOK, "Yes."])
    assert found.is_clean, found.summary()
    assert len(found.seams) == 2 * 5
    medians = {kind: round(statistics.median(ms)) for kind, ms in found.silences_ms.items()}
    assert medians == {"heading": 1000, "sentence": 350, "paragraph": 800, "item": 450}


@pytest.mark.parametrize("at", [0, 30_000, -1])
def test_a_planted_click_is_found(at: int) -> None:
    tone = np.sin(np.arange(20_000) * 0.05) * np.hanning(20_000)
    clean = np.concatenate((tone, np.zeros(20_000), tone)).astype(np.float32)
    assert pauses.clicks(clean) == 0
    clean[at] += 0.0113  # what the vocoder's own end was like
    assert pauses.clicks(clean) > 0


@pytest.mark.slow
def test_a_cancel_stops_within_a_step(tts: Nightingale) -> None:
    found = cancels.cancels(tts, 10)
    assert len(found.stopped_ms) + found.n_finished == 10
    assert len(found.stopped_ms) > 2
    assert found.n_after == found.n_late == 0


def growth(tts: Nightingale) -> float:
    """What late windows cost by early ones. The median of many pairs, since other tests run beside:
    single ratios were up to 7 then."""
    ratios = flat.late_by_early(
        tts, tts.components.plan.window_sizes[2], rounds=5, early=2, late=6, near=2
    )
    assert len(ratios) == 20
    return statistics.median(ratios)


@pytest.mark.slow
def test_late_windows_cost_as_early_ones(tts: Nightingale) -> None:
    assert 0.55 < growth(tts) < 1.8


def test_windows_that_cost_more_and_more_are_seen_beside_other_processes(
    tts: Nightingale, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(1)

    def measured(by_window: float) -> float:
        def costs(_tts: Nightingale, _n_tokens: int) -> Iterator[float]:
            for number in itertools.count():
                yield (1 + by_window * number) * (1 + random.exponential())

        monkeypatch.setattr(flat, "window_ms", costs)
        return growth(tts)

    for _ in range(100):
        assert 0.55 < measured(0) < 1.8 < measured(1)


@pytest.mark.slow
def test_memory_does_not_grow(tts: Nightingale) -> None:
    held = flat.memory(tts, 0.4)  # an hour of it: benchmarks/streaming memory
    assert max(held.mb) - min(held.mb) < 100, held


def test_a_leak_would_be_seen() -> None:
    minutes = [at / 6 for at in range(30)]
    flat_out = flat.Memory(minutes, [900.0 + at % 3 for at in range(30)])
    leaking = flat.Memory(minutes, [900.0 + at % 3 + at for at in range(30)])
    assert abs(flat_out.mb_per_hour) < 60 < leaking.mb_per_hour


def test_nasty_texts_are_many_and_always_the_same() -> None:
    assert nasty(500) == nasty(500)
    lengths = {len(each.text) for each in nasty(500)}
    assert len(set(nasty(500))) > 250
    assert max(lengths) > 2500
    assert min(lengths) == 2


SILENCE = np.zeros(1, np.float32)


def test_babble_cuts_and_other_words_are_told_apart() -> None:
    asked = [Nasty("a", "Bread."), Nasty("b", "Red, green, blue, white."), Nasty("c", "Stop, now.")]
    heard = iter(("This. Brad.", "Red.", "And this. Stop, now, and then and then and then."))
    found = summary(list(judge(asked, lambda *_: SILENCE, lambda _: next(heard))))
    assert found["of_kind"] == {"a": 1, "b": 1, "c": 1}
    assert (found["n_babble"], found["n_cut"]) == (1, 1)


def test_a_short_text_is_heard_behind_others_or_else_alone() -> None:
    heard = iter(("And the last one is this: bread.", "The lost. Bread", "Bread!", "And this."))
    verdicts = list(judge([Nasty("a", "Bread.")] * 3, lambda *_: SILENCE, lambda _: next(heard)))
    assert [verdict.heard for verdict in verdicts] == ["bread.", "Bread!", ""]
    assert [verdict.is_catastrophe for verdict in verdicts] == [False, False, True]


@pytest.mark.parametrize(
    ("asked", "heard", "n_wrong"),
    [
        ("Y.", "Why?", 0),
        ("W.", "Double you.", 0),
        ("Z, J, P, L, S.", "ZJPLS", 0),
        ("Z, J, P, L, S.", "Zee, J. B. El S", 1),
        ("V.", "We.", 2),
        ("V.", "", 1),
    ],
)
def test_letters_are_judged_by_their_sound(asked: str, heard: str, n_wrong: int) -> None:
    assert letter_edits(asked, heard).total == n_wrong


def test_every_command_of_the_proofs_explains_itself() -> None:
    from typer.testing import CliRunner

    from benchmarks.streaming.__main__ import app

    for name in ("identity", "seams", "flat", "memory", "cancels", "nasty", "first-sound"):
        assert CliRunner().invoke(app, [name, "--help"]).exit_code == 0
