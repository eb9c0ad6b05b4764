"""Our sampler inside vLLM's: what it draws is the only token left, and vLLM takes it."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from vllm.v1.sample.logits_processor import LogitsProcessor, MoveDirectionality

from nightingale.backends.vllm.batch import keep_drawn, registered


class T3Sampler(LogitsProcessor):
    """Penalty, temperature, min-p and guard of each row, with noise by (seed, purpose, index)."""

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:  # noqa: ARG002
        self._batch = registered(vllm_config.model_config.hf_config.nightingale_batch)

    def is_argmax_invariant(self) -> bool:
        return False

    def update_state(self, batch_update: Any) -> None:
        """Called before the forward pass, so that the model knows its rows, too."""
        if batch_update is None:
            return
        self._batch.place(
            batch_update.removed,
            [(row, params.extra_args["number"]) for row, params, _, _ in batch_update.added],
            [(a, b, way is MoveDirectionality.SWAP) for a, b, way in batch_update.moved],
        )

    def apply(self, logits: Tensor) -> Tensor:
        keep_drawn(logits, self._batch.draw(logits))
        return logits
