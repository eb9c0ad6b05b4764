"""Compiled attention, norms and curves in bfloat16, against torch's in float64."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nightingale.nn import fused

pytestmark = pytest.mark.usefixtures("amx")


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def error(near: Tensor, exact: Tensor) -> float:
    return float((near.double() - exact).norm() / exact.norm())


def exact_attention(queries: Tensor, keys: Tensor, values: Tensor, n_heads: int) -> Tensor:
    heads = [
        x.double().view(*x.shape[:2], n_heads, -1).transpose(1, 2) for x in (queries, keys, values)
    ]
    out = F.scaled_dot_product_attention(heads[0], heads[1], heads[2])
    return out.transpose(1, 2).flatten(2)


@pytest.mark.parametrize("d_head", fused.D_HEADS)
@pytest.mark.parametrize(
    ("n_rows", "n_queries", "n_keys"),
    [(1, 1, 1), (1, 16, 16), (2, 5, 5), (2, 33, 17), (1, 31, 64), (2, 100, 250)],
)
def test_attention_is_attention(n_rows: int, n_queries: int, n_keys: int, d_head: int) -> None:
    width = 3 * d_head
    queries = drawn(n_rows, n_queries, width).bfloat16()
    keys, values = (drawn(n_rows, n_keys, width, seed=s).bfloat16() for s in (1, 2))
    exact = exact_attention(queries, keys, values, 3)
    assert error(fused.attend(queries, [keys], [values], 3), exact) < 0.004


def test_attention_reads_parts_of_wider_rows() -> None:
    whole = drawn(2, 40, 3 * 128).bfloat16()
    queries, keys, values = whole.chunk(3, dim=-1)
    exact = exact_attention(queries, keys, values, 2)
    assert error(fused.attend(queries, [keys], [values], 2), exact) < 0.004


def test_attention_over_several_parts_is_attention_over_them_joined() -> None:
    queries = drawn(2, 20, 128).bfloat16()
    keys, values = (drawn(2, 100, 128, seed=s).bfloat16() for s in (1, 2))
    whole = fused.attend(queries, [keys], [values], 2)
    key_parts, value_parts = (
        [x[:, start:end].contiguous() for start, end in ((0, 1), (1, 51), (51, 58), (58, 100))]
        for x in (keys, values)
    )
    assert torch.equal(fused.attend(queries, key_parts, value_parts, 2), whole)


def test_sharp_attention_neither_overflows_nor_blurs() -> None:
    for n in (20, 200):
        queries, keys, values = (30 * drawn(1, n, 64, seed=s).bfloat16() for s in range(3))
        exact = exact_attention(queries, keys, values, 1)
        assert error(fused.attend(queries, [keys], [values], 1), exact) < 0.004


@pytest.mark.parametrize("at", [0, 31, 32, 99])
@pytest.mark.parametrize("size", [1.0, 40.0, 4000.0])
def test_one_key_may_outweigh_all_others_wherever_it_stands(at: int, size: float) -> None:
    queries, keys, values = (drawn(1, 100, 64, seed=s).bfloat16() for s in range(3))
    queries = queries.abs()
    for key in (size, -size):
        keys[:, at] = key
        exact = exact_attention(queries, keys, values, 1)
        assert error(fused.attend(queries, [keys], [values], 1), exact) < 0.004


@pytest.fixture
def norm() -> nn.LayerNorm:
    made = nn.LayerNorm(48, 1e-5).requires_grad_(False)
    made.weight.copy_(drawn(48, seed=8))
    made.bias.copy_(drawn(48, seed=9))
    return made


@pytest.mark.parametrize("has_y", [False, True])
def test_a_stream_grows_and_is_normed(norm: nn.LayerNorm, has_y: bool) -> None:
    x, y = 3 * drawn(2, 7, 48) + 5, drawn(2, 7, 48, seed=1).bfloat16()
    wanted = x + y if has_y else x.clone()
    out = fused.add_norm(x, y if has_y else None, norm)
    assert torch.equal(x, wanted)
    assert error(out, norm.double()(wanted.double())) < 0.003


def test_norm_and_mish(norm: nn.LayerNorm) -> None:
    h, shift, residual = (
        4 * drawn(2, 7, 48).bfloat16(),
        drawn(48),
        drawn(2, 7, 48, seed=1).bfloat16(),
    )
    shifted = fused.norm_mish(h, norm, shift)
    plain, added = fused.norm_mish(h, norm), fused.norm_mish_residual(h, norm, residual)
    exact = F.mish(norm.double()(h.double()))
    assert error(plain, exact) < 0.003
    assert error(shifted, exact + shift) < 0.003
    assert added.dtype == torch.float32
    assert error(added, exact + residual) < 0.0005


def test_threads_leave_no_trace(norm: nn.LayerNorm) -> None:
    before = torch.get_num_threads()
    made: list[list[Tensor]] = []
    try:
        for n_threads in (1, 2, 3):
            torch.set_num_threads(n_threads)
            x = drawn(2, 50, 3 * 64).bfloat16()
            queries, keys, values = x.chunk(3, dim=-1)
            stream = drawn(2, 50, 48)
            made.append(
                [
                    fused.attend(queries, [keys], [values], 1),
                    fused.add_norm(stream, None, norm),
                    fused.norm_mish(stream.bfloat16(), norm),
                ]
            )
    finally:
        torch.set_num_threads(before)
    for other in made[1:]:
        assert all(torch.equal(a, b) for a, b in zip(made[0], other, strict=True))
