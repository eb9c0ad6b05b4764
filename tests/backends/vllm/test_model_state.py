"""The form for vLLM's V2 model runner, whose kernels cannot run here: what is ours in it."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from nightingale.backends.vllm.batch import Batch
from tests.backends.vllm.test_batch import N_SPEECH, sequence

pytest.importorskip("vllm")

from vllm.v1.worker.gpu.model_states.default import DefaultModelState

from nightingale.backends.vllm.model import T3ForCausalLM
from nightingale.backends.vllm.model_state import RowSampler, T3ModelState


def test_the_model_names_its_state_which_takes_prompt_embeddings() -> None:
    state = T3ForCausalLM.get_model_state_cls()
    assert state is T3ModelState and state.supports_prompt_embeds


def test_requests_keep_their_numbers_and_rows_follow_the_runner(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("add_request", "remove_request", "prepare_inputs_embeds"):
        monkeypatch.setattr(DefaultModelState, name, lambda *_: None)  # Triton's
    state = object.__new__(T3ModelState)
    state._batch, state._numbers = Batch(), {}
    for index, number in ((5, 1), (3, 2)):
        params = SimpleNamespace(extra_args={"number": number})
        state.add_request(index, SimpleNamespace(req_id=f"r{number}", sampling_params=params))
    state.prepare_inputs_embeds({}, SimpleNamespace(req_ids=["r2", "dummy", "r1"]), None)
    assert state._batch.rows == {0: 2, 2: 1}
    state.remove_request("r2")
    state.prepare_inputs_embeds({}, SimpleNamespace(req_ids=["r1"]), None)
    assert state._batch.rows == {0: 1}


def test_the_drawn_token_is_what_the_sampler_of_the_runner_sees() -> None:
    class Greedy:
        compute_nans = False

        def __call__(self, logits: torch.Tensor, _: object) -> torch.Tensor:
            return logits.argmax(-1)

    batch = Batch()
    batch.live = {1: sequence(1, 10)}
    batch.arrange([None, 1])
    batch.last, batch.looks = [3, 9], [None, None]
    logits = torch.zeros(2, N_SPEECH)
    logits[0, 5], logits[1, 77] = 1.0, 1.0
    sampler = RowSampler(Greedy(), batch)
    assert sampler(logits, None).tolist() == [5, 77]
    assert sampler.compute_nans is False
