"""The entry to this backend: whether it can run here, and how a model is loaded."""

from __future__ import annotations

import os

import torch

from nightingale.backends.base import Availability, LoadedModel, ModelFiles, ResolvedPlan
from nightingale.backends.torch.decoder import make_decoder, prompt_cache_bytes
from nightingale.backends.torch.engine import TorchTokenEngine
from nightingale.backends.torch.flow.model import Flow
from nightingale.backends.torch.load import (
    accelerate_flow,
    accelerate_vocoder,
    load_flow,
    load_t3,
    load_vocoder,
)
from nightingale.backends.torch.memory import max_requests
from nightingale.backends.torch.resolve import kernel_states, resolve
from nightingale.backends.torch.slot_engine import SlotTokenEngine
from nightingale.backends.torch.t3.captured import CapturedStep
from nightingale.backends.torch.t3.model import T3
from nightingale.backends.torch.vocoder.model import Vocoder
from nightingale.core import Plan
from nightingale.errors import LayoutError
from nightingale.families import FAMILIES, FamilySpec
from nightingale.nn import fused
from nightingale.nn.device import Placement, allow_tf32, choose, hardware

# torch's libraries keep a kernel for every shape that they met, 1,024 of each kind by
# default: half a gigabyte after an hour of speech with AMX. Without it more than 512 are met;
# to keep them all took no more memory there, and to make them again costs time.
os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "512" if fused.has_amx() else "1024")
os.environ.setdefault("LRU_CACHE_CAPACITY", "128")


class TorchBackend:
    """CPU with packed weights and compiled kernels; every other device that torch computes on."""

    name = "torch"

    def availability(self) -> Availability:
        placement = choose()
        precision = str(placement.dtype).removeprefix("torch.")
        facts = {
            "torch": f"{torch.__version__}, {torch.get_num_threads()} threads",
            "device": f"{placement.device}, {precision}: {placement.reason}",
            "kernels": kernel_states(),
        }
        return Availability(is_available=True, facts=facts)

    def resolve(self, plan: Plan, device: str) -> ResolvedPlan:
        return resolve(plan, choose(device))

    def load(self, files: ModelFiles) -> LoadedModel:
        placement = choose(files.device)
        if files.threads:
            torch.set_num_threads(files.threads)
        resolved = resolve(files.plan, placement)
        try:
            t3 = load_t3(files, resolved.plan, placement)
        except LayoutError as error:
            if files.plan.t3 != "auto":
                raise
            resolved = resolved.changed("t3", "fp32", str(error))
            t3 = load_t3(files, resolved.plan, placement)
        return assemble(
            t3,
            load_flow(files.decoder, files.s3gen, placement),
            load_vocoder(files.s3gen, placement),
            FAMILIES[files.family],
            resolved,
            placement,
        )


BACKEND = TorchBackend()


def _token_engine(t3: T3, plan: Plan, placement: Placement) -> TorchTokenEngine:
    if not plan.slots:
        return TorchTokenEngine(t3)
    if placement.has_graphs:
        return SlotTokenEngine(t3, plan.slots, CapturedStep)
    return SlotTokenEngine(t3, plan.slots)


def assemble(
    t3: T3,
    flow: Flow,
    vocoder: Vocoder,
    spec: FamilySpec,
    resolved: ResolvedPlan,
    placement: Placement,
) -> LoadedModel:
    """Modules with weights -> engine and decoder, computed as the plan wants it."""
    allow_tf32(resolved.plan.tf32)
    flow = accelerate_flow(flow, placement, resolved.plan)
    if resolved.plan.flow == "bf16" and flow.estimator.dtype != torch.bfloat16:
        d_head = flow.config.estimator.d_head
        resolved = resolved.changed("flow", "fp32", f"heads of {d_head} numbers are not for AMX")
    prompt_bytes, few = prompt_cache_bytes(flow, placement.device)
    if few and resolved.plan.prompt_cache:
        resolved = resolved.changed("prompt_cache", True, few)
    return LoadedModel(
        _token_engine(t3, resolved.plan, placement),
        make_decoder(
            flow,
            accelerate_vocoder(vocoder, placement, resolved.plan),
            resolved.plan,
            drops_last=spec.drops_last_token,
            max_prompt_bytes=prompt_bytes,
        ),
        device=str(placement.device),
        encoder_device=str(placement.device),
        versions={
            "torch": torch.__version__,
            "dtype": str(placement.dtype),
            "hardware": hardware(placement.device),
            "instructions": torch.backends.cpu.get_cpu_capability() + "+amx" * fused.has_amx(),
        },
        resolved=resolved,
        max_requests=max_requests(t3, flow, spec, resolved.plan, prompt_bytes),
    )
