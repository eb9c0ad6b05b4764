"""What is kept is found by its content, and the least used makes room."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nightingale.nn.lru import ByteLimitedLRU, digest


@dataclass(frozen=True)
class Thing:
    n_bytes: int
    name: str = ""


def test_the_same_content_is_made_once_and_other_content_anew() -> None:
    cache: ByteLimitedLRU[Thing] = ByteLimitedLRU(100)
    made = []

    def make() -> Thing:
        made.append(1)
        return Thing(10)

    x = np.arange(4)
    first = cache.get([x], make)
    assert cache.get([x.copy()], make) is first
    assert cache.get([x], make, "more") is not first
    assert cache.get([x.astype(np.float32)], make) is not first
    assert len(made) == 3


def test_the_least_used_makes_room_and_the_last_always_stays() -> None:
    cache: ByteLimitedLRU[Thing] = ByteLimitedLRU(100)
    a, b, c = (np.array([i]) for i in range(3))
    cache.get([a], lambda: Thing(50, "a"))
    cache.get([b], lambda: Thing(50, "b"))
    cache.get([a], lambda: Thing(50, "never"))
    cache.get([c], lambda: Thing(50, "c"))
    assert len(cache) == 2
    assert cache.get([a], lambda: Thing(1, "new")).name == "a"
    assert cache.get([b], lambda: Thing(500, "new")).name == "new"
    assert len(cache) == 1


def test_shape_and_type_tell_apart() -> None:
    flat, square = np.zeros(4), np.zeros((2, 2))
    assert (
        len(
            {
                digest([flat]),
                digest([square]),
                digest([flat.astype(np.int32)]),
                digest([flat, flat]),
            }
        )
        == 4
    )


def test_all_of_a_content_is_forgotten_and_nothing_else() -> None:
    cache: ByteLimitedLRU[Thing] = ByteLimitedLRU(100)
    a, b = np.zeros(1), np.ones(1)
    for more in ("x", "y"):
        cache.get([a], lambda: Thing(1, "old"), more)
        cache.get([b], lambda: Thing(1, "old"), more)
    cache.forget([a])
    assert len(cache) == 2
    assert cache.get([a], lambda: Thing(1, "new"), "x").name == "new"
    assert cache.get([b], lambda: Thing(1, "new"), "x").name == "old"
