"""The entry to this backend: whether it can run here, and how a model is loaded."""

from __future__ import annotations

import os
from dataclasses import replace
from importlib import metadata, util
from typing import Literal

import torch

from nightingale.backends import is_apple_silicon
from nightingale.backends.base import Availability, LoadedModel, ModelFiles, ResolvedPlan
from nightingale.backends.torch.decoder import make_decoder, prompt_cache_bytes
from nightingale.backends.torch.engine import TorchTokenEngine
from nightingale.backends.torch.flow.model import Flow
from nightingale.backends.torch.load import load_flow, load_t3, load_vocoder
from nightingale.backends.torch.memory import max_requests
from nightingale.backends.torch.t3.model import T3
from nightingale.backends.torch.vocoder.model import Vocoder
from nightingale.core import AUTO, CPU, Plan
from nightingale.errors import LayoutError
from nightingale.families import FAMILIES, FamilySpec
from nightingale.nn.device import choose as choose_torch

# What the plan calls fp32 is fp32: on M5 and later, MLX would round the inputs of products to 10
# bits. It reads this once, before its first product.
os.environ.setdefault("MLX_ENABLE_TF32", "0")

_INSTALL = "pip install 'nightingale-tts[mlx]'"
_DECODER = "flow and vocoder are computed in fp32 by MLX"


class MlxBackend:
    """All families on Apple Silicon; on other machines, MLX's CPU build holds it to its numbers."""

    name = "mlx"

    def availability(self) -> Availability:
        if util.find_spec("mlx") is None or util.find_spec("mlx.core") is None:
            if is_apple_silicon():
                return Availability(False, f"MLX is not installed: {_INSTALL}")
            return Availability(False, "it is for Macs with Apple Silicon")
        from nightingale.backends.mlx.device import choose  # noqa: PLC0415 - MLX

        placement = choose()
        facts = {"mlx": f"{metadata.version('mlx')} on {placement.name}: {placement.reason}"}
        return Availability(True, facts=facts)

    def resolve(self, plan: Plan, device: str) -> ResolvedPlan:
        from nightingale.backends.mlx.device import choose  # noqa: PLC0415 - MLX

        placement = choose(device)
        reasons = {"device": placement.reason}
        t3, reasons["t3"] = _t3(plan)
        if {plan.flow, plan.vocoder} != {"fp32"}:
            reasons["flow"] = _DECODER
        if plan.name == AUTO:
            reasons["windows"] = "for streaming"
        given = replace(
            plan,
            t3=t3,
            flow="fp32",
            vocoder="fp32",
            tf32=False,
            slots=plan.slots if placement.is_gpu else 0,
            window_slots=1,
        )
        return ResolvedPlan(
            given, placement.name, {name: why for name, why in reasons.items() if why}
        )

    def load(self, files: ModelFiles) -> LoadedModel:
        host = choose_torch(CPU)
        if files.threads:
            torch.set_num_threads(files.threads)
        modules = (
            load_t3(files, replace(files.plan, t3="fp32"), host),
            load_flow(files.decoder, files.s3gen, host),
            load_vocoder(files.s3gen, host),
        )
        return self.assemble(modules, FAMILIES[files.family], files.plan, files.device)

    def assemble(
        self, modules: tuple[T3, Flow, Vocoder], spec: FamilySpec, plan: Plan, device: str
    ) -> LoadedModel:
        """Modules of torch with weights -> engine and decoder, computed as the plan wants it."""
        from nightingale.backends.mlx.device import choose  # noqa: PLC0415 - MLX
        from nightingale.backends.mlx.flow import MlxFlow  # noqa: PLC0415
        from nightingale.backends.mlx.t3 import make_t3  # noqa: PLC0415
        from nightingale.backends.mlx.vocoder import MlxVocoder  # noqa: PLC0415

        plain, slow_flow, slow_vocoder = modules
        placement, resolved = choose(device), self.resolve(plan, device)
        try:
            t3 = make_t3(plain, resolved.plan, placement)
        except LayoutError as error:
            if plan.t3 != "auto":
                raise
            resolved = resolved.changed("t3", "fp32", str(error))
            t3 = make_t3(plain, resolved.plan, placement)
        flow = MlxFlow(slow_flow, placement)
        prompt_bytes, few = prompt_cache_bytes(flow, choose_torch(CPU).device)
        if few and resolved.plan.prompt_cache:
            resolved = resolved.changed("prompt_cache", True, few)
        decoder = make_decoder(
            flow,
            MlxVocoder(slow_vocoder, placement),
            resolved.plan,
            drops_last=spec.drops_last_token,
            max_prompt_bytes=prompt_bytes,
        )
        return LoadedModel(
            TorchTokenEngine(t3),
            decoder,
            device=placement.name,
            versions={
                "mlx": metadata.version("mlx"),
                "torch": torch.__version__,
                "hardware": placement.hardware,
            },
            resolved=resolved,
            max_requests=max_requests(t3, flow, spec, resolved.plan, prompt_bytes),
        )


BACKEND = MlxBackend()


def _t3(plan: Plan) -> tuple[Literal["fp32", "bf16", "int8", "int4"], str]:
    if plan.t3 == "auto":
        return "int8", "a step is bound by reading weights"
    return plan.t3, ""
