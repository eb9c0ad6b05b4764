"""T3 in vLLM's V2 model runner: who is in which row, and our sampler before vLLM's.

Type-checked against vLLM 0.32 and not run: that runner's own kernels need Triton, and so a GPU.
`VLLM_USE_V2_MODEL_RUNNER=1` chooses it. It takes no logits processor of the V1 form (`sampler`);
the model, the prompts and the batch are the same in both.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from vllm.config import VllmConfig
from vllm.v1.core.sched.output import NewRequestData
from vllm.v1.worker.gpu.input_batch import InputBatch
from vllm.v1.worker.gpu.mm.encoder_cache import EncoderCache
from vllm.v1.worker.gpu.model_states.default import DefaultModelState
from vllm.v1.worker.gpu.sample.output import SamplerOutput
from vllm.v1.worker.gpu.sample.sampler import Sampler
from vllm.v1.worker.gpu.states import RequestState

from nightingale.backends.vllm.batch import Batch, keep_drawn, registered


class T3ModelState(DefaultModelState):
    """Prompt embeddings as vLLM has them; the batch learns its rows before the forward pass."""

    def __init__(
        self,
        vllm_config: VllmConfig,
        model: nn.Module,
        encoder_cache: EncoderCache | None,
        device: torch.device,
    ) -> None:
        super().__init__(vllm_config, model, encoder_cache, device)
        self._batch = registered(vllm_config.model_config.hf_config.nightingale_batch)
        self._numbers: dict[str, int] = {}  # vLLM's name of a request -> ours

    def add_request(self, req_index: int, new_req_data: NewRequestData) -> None:
        """Also one that was preempted and comes back: its number is the same."""
        super().add_request(req_index, new_req_data)
        params = new_req_data.sampling_params
        assert params is not None and params.extra_args is not None
        self._numbers[new_req_data.req_id] = params.extra_args["number"]

    def remove_request(self, req_id: str) -> None:
        super().remove_request(req_id)
        self._numbers.pop(req_id, None)

    def prepare_inputs_embeds(
        self,
        scheduled_encoder_inputs: dict[str, list[int]],
        input_batch: InputBatch,
        req_states: RequestState,
    ) -> Tensor:
        self._batch.arrange(self._numbers.get(name) for name in input_batch.req_ids)
        embeds: Tensor = super().prepare_inputs_embeds(
            scheduled_encoder_inputs, input_batch, req_states
        )
        return embeds

    def custom_sampler(self, sampler: Sampler) -> tuple[RowSampler, None]:
        return RowSampler(sampler, self._batch), None


class RowSampler:
    """Draws as the V1 form does; vLLM's own sampler then takes the one token that is left."""

    def __init__(self, sampler: Sampler, batch: Batch) -> None:
        self._sampler, self._batch = sampler, batch

    def __call__(self, logits: Tensor, input_batch: InputBatch) -> SamplerOutput:
        keep_drawn(logits, self._batch.draw(logits))
        return self._sampler(logits, input_batch)

    def __getattr__(self, name: str) -> Any:
        """What the runner asks a sampler for besides: states of requests, settings."""
        return getattr(self._sampler, name)
