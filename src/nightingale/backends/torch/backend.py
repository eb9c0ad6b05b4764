"""The entry to this backend: whether it can run here, and how a model is loaded."""

from __future__ import annotations

import os

import torch

from nightingale.backends.base import Availability, LoadedModel, ModelFiles
from nightingale.backends.torch.decoder import make_decoder
from nightingale.backends.torch.engine import TorchTokenEngine
from nightingale.backends.torch.flow.model import Flow
from nightingale.backends.torch.load import (
    accelerate_flow,
    accelerate_vocoder,
    check_plan,
    load_flow,
    load_t3,
    load_vocoder,
)
from nightingale.backends.torch.t3.model import T3
from nightingale.backends.torch.vocoder.model import Vocoder
from nightingale.core import Plan
from nightingale.families import FAMILIES, FamilySpec
from nightingale.nn import amx, native
from nightingale.nn.device import Placement, choose

# torch's libraries keep a kernel for every shape that they met, 1,024 of each kind by
# default: half a gigabyte after an hour of speech with AMX. Without it more than 512 are met;
# to keep them all took no more memory there, and to make them again costs time.
os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "512" if amx.is_available() else "1024")
os.environ.setdefault("LRU_CACHE_CAPACITY", "128")


class TorchBackend:
    """CPU with packed weights and compiled kernels; CUDA and MPS."""

    name = "torch"

    def availability(self) -> Availability:
        placement = choose()
        precision = str(placement.dtype).removeprefix("torch.")
        facts = {
            "torch": f"{torch.__version__}, {torch.get_num_threads()} threads",
            "device": f"{placement.device}, {precision}: {placement.reason}",
            "fast plans": _compiled(),
        }
        return Availability(is_available=True, facts=facts)

    def load(self, files: ModelFiles) -> LoadedModel:
        placement = choose(files.device)
        check_plan(files.plan, placement)
        if files.threads:
            torch.set_num_threads(files.threads)
        return assemble(
            load_t3(files, placement),
            load_flow(files.decoder, files.s3gen, placement),
            load_vocoder(files.s3gen, placement),
            FAMILIES[files.family],
            files.plan,
            placement,
        )


BACKEND = TorchBackend()


def assemble(
    t3: T3, flow: Flow, vocoder: Vocoder, spec: FamilySpec, plan: Plan, placement: Placement
) -> LoadedModel:
    """Modules with weights -> engine and decoder, computed as the plan wants it."""
    return LoadedModel(
        TorchTokenEngine(t3),
        make_decoder(
            accelerate_flow(flow, placement, plan),
            accelerate_vocoder(vocoder, placement, plan),
            plan,
            drops_last=spec.drops_last_token,
        ),
        device=str(placement.device),
        encoder_device=str(placement.device),
        versions={
            "torch": torch.__version__,
            "dtype": str(placement.dtype),
            "instructions": torch.backends.cpu.get_cpu_capability() + "+amx" * amx.is_available(),
        },
    )


def _compiled() -> str:
    kind = next((kind for kind in native.KINDS if native.load(kind)), None)
    if kind is None:
        return "no packed weights: install a C compiler and then reinstall nightingale-tts"
    bfloat16 = "with AMX" if native.amx() else "not available (needs Intel AMX), fp32 instead"
    return f"packed weights by {kind}; bfloat16 {bfloat16}"
