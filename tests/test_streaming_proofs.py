"""Small versions of the proofs in benchmarks/streaming, with the model that comes along."""

from __future__ import annotations

import pytest

from benchmarks.streaming import cancels, flat, identity, seams
from benchmarks.streaming.nasty import nasty
from nightingale.measure import texts
from nightingale.pipeline import Nightingale

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Nightingale:
    home = tmp_path_factory.mktemp("home")
    return Nightingale.load("fledgling", home=home, device="cpu", plan="live")


def test_a_request_has_one_sound_for_any_listener(engine: Nightingale) -> None:
    said = texts.read("short", 2)
    found = identity.identity(engine, said, n_runs=48)
    assert {text: len(sounds) for text, sounds in found.items()} == dict.fromkeys(said, 1)
    assert len({sound for sounds in found.values() for sound in sounds}) == len(said)


def test_seams_are_like_other_places_and_faults_are_not(engine: Nightingale) -> None:
    said = texts.read("held_out", 10)
    assert min(seams.examine(engine, said).p_values().values()) > 0.001
    for fault in ("sample", "frame", "noise"):
        assert min(seams.examine(engine, said, fault).p_values().values()) < 0.001, fault


def test_a_cancel_stops_within_a_step(engine: Nightingale) -> None:
    found = cancels.cancels(engine, 20)
    assert len(found.stopped_ms) + found.n_finished == 20
    assert len(found.stopped_ms) > 5
    assert found.n_after == found.n_late == 0


def test_windows_and_memory_stay_as_they_are(engine: Nightingale) -> None:
    costs = flat.window_ms(engine, 30, rounds=3)
    assert 0.6 < flat.ratio(costs, 2, len(costs) - 3) < 1.6
    held = flat.memory(engine, 1.0)
    assert max(held.mb) - min(held.mb) < 200


def test_a_leak_would_be_seen() -> None:
    minutes = [at / 6 for at in range(30)]
    flat_out = flat.Memory(minutes, [900.0 + at % 3 for at in range(30)])
    leaking = flat.Memory(minutes, [900.0 + at % 3 + at for at in range(30)])
    assert abs(flat_out.mb_per_hour) < 60 < leaking.mb_per_hour


def test_nasty_texts_are_many_and_always_the_same() -> None:
    assert nasty(500) == nasty(500)
    assert len(set(nasty(500))) > 250
    assert max(map(len, nasty(500))) > 2500
    assert min(map(len, nasty(500))) == 2


def test_every_command_of_the_proofs_explains_itself() -> None:
    from typer.testing import CliRunner

    from benchmarks.streaming.__main__ import app

    for name in ("identity", "seams", "flat", "cancels", "nasty", "first-sound"):
        assert CliRunner().invoke(app, [name, "--help"]).exit_code == 0
