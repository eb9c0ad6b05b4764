"""Rows of a batch and keys by physical slot: what needs no vLLM."""

from __future__ import annotations

import pytest
import torch

from nightingale.backends.torch.t3.decode import SequenceSampler
from nightingale.backends.torch.t3.sampling import llama_sampler
from nightingale.backends.vllm.batch import Batch, KeyStore, LiveSequence, keep_drawn, slots_of
from nightingale.core import END_OF_SPEECH, START_OF_SPEECH, Options

N_SPEECH = START_OF_SPEECH + 2
CPU = torch.device("cpu")


def sequence(number: int, n_prompt: int, forced: tuple[int, ...] = ()) -> LiveSequence:
    sampler = SequenceSampler(
        llama_sampler(Options(temperature=0)),
        lambda _: torch.ones(N_SPEECH),
        9,
        forced,
        penalizes_start=True,
    )
    return LiveSequence(number, n_prompt, 0.5, sampler, None)


@pytest.fixture
def batch() -> Batch:
    batch = Batch()
    batch.live = {number: sequence(number, 10 * number) for number in (1, 2, 3)}
    batch.place([], [(0, 1), (1, 2), (2, 3)], [])
    return batch


def test_rows_follow_removals_additions_moves_and_swaps(batch: Batch) -> None:
    batch.place([1], [], [(2, 1, False)])
    assert batch.rows == {0: 1, 1: 3}
    batch.place([], [(2, 2)], [(0, 2, True)])
    assert batch.rows == {0: 2, 1: 3, 2: 1}
    assert batch.prompt_lengths(3, CPU).tolist() == [20, 30, 10]


def test_a_cancelled_request_has_no_row_that_speaks(batch: Batch) -> None:
    del batch.live[2]
    lengths = batch.prompt_lengths(4, CPU)
    assert lengths[[0, 2]].tolist() == [10, 30]
    assert (lengths[[1, 3]] > 2**20).all()
    assert batch.cfg_weights(4, CPU).flatten().tolist() == [0.5, 0, 0.5, 0]


def test_rows_are_arranged_anew_for_each_step(batch: Batch) -> None:
    """As the V2 runner has them: its own order, and rows of nobody."""
    batch.arrange([3, None, 1])
    assert batch.rows == {0: 3, 2: 1}
    assert batch.prompt_lengths(3, CPU)[[0, 2]].tolist() == [30, 10]
    batch.arrange([])
    assert batch.sequence(0) is None


def test_a_drawn_token_is_the_only_one_left_in_its_row() -> None:
    logits = torch.randn(3, N_SPEECH)
    before = logits.clone()
    keep_drawn(logits, {0: 7, 2: 99})
    assert logits.argmax(-1)[[0, 2]].tolist() == [7, 99]
    assert logits[[0, 2]].isfinite().sum() == 2
    assert logits[1].equal(before[1])


def test_only_rows_that_have_read_everything_draw(batch: Batch) -> None:
    batch.live[2].sampler.n_tokens = 4
    batch.last, batch.looks = (
        [9, 22, 28],
        [None] * 3,
    )  # the second reads again, the third still reads
    logits = torch.zeros(3, N_SPEECH)
    logits[:, 77] = 1.0
    assert batch.draw(logits) == {0: 77}
    batch.last = [10, 23, 29]
    assert batch.draw(logits).keys() == {0, 1, 2}


def test_a_failing_sampler_ends_its_own_request_alone(batch: Batch) -> None:
    def fail(*_: object) -> torch.Tensor:
        raise ZeroDivisionError

    batch.live[1].sampler._sample = fail
    batch.last, batch.looks = [9, 19, 29], [None] * 3
    logits = torch.zeros(3, N_SPEECH)
    logits[:, 77] = 1.0
    assert batch.draw(logits) == {0: END_OF_SPEECH, 1: 77, 2: 77}
    assert isinstance(batch.live[1].error, ZeroDivisionError)
    assert batch.live[2].error is None


def test_keys_are_found_by_physical_slot() -> None:
    """Written in two steps, into blocks that are not in order, then read as one sequence."""
    torch.manual_seed(0)
    store, table = KeyStore(64, 2, 16, CPU), [3, 0, 2]
    keys, queries = torch.randn(2, 20, 16), torch.randn(2, 20, 16)
    slots = slots_of(table, 8, 20)
    assert slots[[0, 8, 16]].tolist() == [24, 0, 16]
    for part in (slice(0, 13), slice(13, 20)):
        for head in (0, 1):
            store.write(head, slots[part], keys[head, part], queries[head, part])
    look = store.look(slots, 6)  # the last of the second step
    wanted = (keys @ queries[:, 19, :, None])[..., 0].div(4).softmax(-1)
    assert torch.allclose(look, wanted, atol=1e-6)
