"""The simulation against queueing theory, and what it must see when something is lost."""

from __future__ import annotations

import random

import pytest

from benchmarks.fleet_simulation import Fleet, Ring, Service, Simulation, poisson, zipf


def mean_wait(load: float, n_cores: float = float("inf"), n: int = 4000) -> float:
    """Of requests of one second each at one replica."""
    rng = random.Random(3)
    simulation = Simulation(
        Fleet(1, max_open=10**6, n_cores=n_cores), lambda: Service(1.0, 0.0, 1.0), lambda: 0
    )
    outcome = simulation.run(poisson(load, n / load, rng))
    assert outcome.n_done == outcome.n_asked
    return sum(outcome.first_s) / len(outcome.first_s) - 1.0


def test_waiting_is_that_of_an_m_d_1_queue() -> None:
    for load in (0.3, 0.6):
        theory = load / (2 * (1 - load))
        assert mean_wait(load) == pytest.approx(theory, rel=0.1)
    slowed = mean_wait(0.3, n_cores=0.8)  # a planted fault: the same test must see it
    assert slowed != pytest.approx(0.3 / 1.4, rel=0.1)


def test_replicas_that_share_cores_slow_each_other() -> None:
    def finish(n_cores: float) -> float:
        ring = Ring(2)
        voices = [
            next(v for v in range(99) if ring.place(v, [0, 0], [True] * 2) == n) for n in (0, 1)
        ]
        drawn = iter(voices)
        simulation = Simulation(
            Fleet(2, n_cores=n_cores), lambda: Service(1.0, 0.0, 1.0), lambda: next(drawn)
        )
        return max(simulation.run([0.0, 0.0]).first_s)

    assert finish(2) == pytest.approx(1.0)
    assert finish(1) == pytest.approx(2.0)


def test_a_voice_stays_with_its_replica_and_others_stay_when_one_is_lost() -> None:
    ring, up = Ring(8), [True] * 8
    before = [ring.place(voice, [0] * 8, up) for voice in range(500)]
    assert before == [ring.place(voice, [0] * 8, up) for voice in range(500)]
    assert len(set(before)) == 8
    up[3] = False
    after = [ring.place(voice, [0] * 8, up) for voice in range(500)]
    assert all(new == old for new, old in zip(after, before, strict=True) if old != 3)
    assert 3 not in after
    assert ring.place(0, [0] * 8, [False] * 8) is None


def test_a_busy_replica_gives_its_voice_to_the_next_one() -> None:
    ring = Ring(4)
    home = ring.place(7, [0] * 4, [True] * 4)
    assert home is not None
    loads = [2] * 4
    loads[home] = 9
    assert ring.place(7, loads, [True] * 4) != home


def test_lost_replicas_move_their_requests_and_a_flash_crowd_is_refused() -> None:
    rng = random.Random(5)
    fleet = Fleet(4, n_slots=2, max_open=4)
    simulation = Simulation(fleet, lambda: Service(0.5, 1.0, 2.0, 0.1), zipf(50, rng))
    outcome = simulation.run(poisson(3.0, 30, rng), [(10.0, lambda: simulation.fail([0, 1]))])
    assert outcome.n_moved > 0
    assert outcome.n_done + outcome.n_refused == outcome.n_asked
    crowd = Simulation(fleet, lambda: Service(0.5, 1.0, 2.0, 0.1), zipf(50, rng))
    flooded = crowd.run(poisson(30.0, 10, rng))
    assert flooded.n_refused > 100
    longest_s = 4 / 2 * 1.6 + 0.6  # behind as many as may be open, two at a time
    assert max(flooded.first_s) <= longest_s
