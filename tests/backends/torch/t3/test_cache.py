"""The cache as a thing of its own, on made-up keys and values."""

from __future__ import annotations

import torch

from nightingale.backends.torch.t3.cache import KVCache

N_LAYERS = 2


def read(cache: KVCache, n_positions: int, seed: int) -> None:
    """Append `n_positions` of random keys and values to every layer."""
    generator = torch.Generator().manual_seed(seed)
    for layer in range(N_LAYERS):
        keys, values = torch.randn(2, cache.n_rows, 3, n_positions, 4, generator=generator)
        cache.append(layer, keys, values)
    cache.advance(n_positions)


def content(cache: KVCache) -> torch.Tensor:
    nothing = torch.empty(cache.n_rows, 3, 0, 4)
    pairs = [torch.stack(cache.append(layer, nothing, nothing)) for layer in range(N_LAYERS)]
    return torch.stack(pairs)  # (L, 2, B, H, T, d_head)


def empty(rows: int = 1, capacity: int = 4) -> KVCache:
    return KVCache.empty(N_LAYERS, (rows, 3, capacity, 4))


def test_a_cache_that_had_to_grow_holds_what_one_with_room_holds() -> None:
    small, large = empty(capacity=1), empty(capacity=100)
    for seed, n in enumerate([1, 3, 1, 7, 20]):
        read(small, n, seed)
        read(large, n, seed)
    assert small.length == large.length == 32
    assert torch.equal(content(small), content(large))


def test_growing_doubles_so_that_steps_do_not_copy() -> None:
    cache = empty(capacity=8)
    read(cache, 9, 0)
    assert cache.capacity == 16


def test_a_trimmed_cache_is_one_that_never_grew() -> None:
    trimmed, never = empty(), empty()
    read(trimmed, 5, 0)
    read(never, 5, 0)
    read(trimmed, 6, 1)
    trimmed.trim(5)
    assert torch.equal(content(trimmed), content(never))
    read(trimmed, 2, 2)
    read(never, 2, 2)
    assert torch.equal(content(trimmed), content(never))


def test_forks_and_their_origin_do_not_touch_each_other() -> None:
    origin = empty(capacity=32)
    read(origin, 5, 0)
    before = content(origin).clone()
    one, two = origin.fork(32), origin.fork(32, length=3)
    read(one, 4, 1)
    read(two, 4, 2)
    assert torch.equal(content(origin), before)
    assert torch.equal(content(one)[..., :5, :], before)
    assert torch.equal(content(two)[..., :3, :], before[..., :3, :])
    assert (origin.length, one.length, two.length) == (5, 9, 7)


def test_joined_rows_keep_their_own_content() -> None:
    one, two = empty(), empty()
    read(one, 3, 1)
    read(two, 3, 2)
    joined = KVCache.join([one, two], capacity=10)
    assert (joined.n_rows, joined.capacity) == (2, 10)
    assert torch.equal(content(joined), torch.cat([content(one), content(two)], dim=2))


def test_size_in_bytes_is_told() -> None:
    assert empty(rows=2, capacity=10).n_bytes == N_LAYERS * 2 * (2 * 3 * 10 * 4) * 4
