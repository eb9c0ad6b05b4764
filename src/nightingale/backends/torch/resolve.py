"""What a device gives of a plan, field by field, and why. Loads nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

from nightingale.backends.base import ResolvedPlan
from nightingale.core import AUTO, Plan
from nightingale.nn import deterministic, fused, native
from nightingale.nn.device import Placement

Precision = Literal["fp32", "bf16", "int8", "int4"]
Fused = Literal["fp32", "bf16", "int8"]
_NO_KERNELS = "no compiled kernels: install a C compiler, then reinstall nightingale-tts"
_NO_AMX = "bfloat16 needs Intel AMX here"
_NO_INT8 = "8 bits need compiled kernels, and AVX2, AVX-512 VNNI or NEON dot products"


def resolve(plan: Plan, placement: Placement) -> ResolvedPlan:
    """No plan is refused: a field that the device does not have becomes the nearest that it has."""
    reasons = {"device": placement.reason}
    t3, reasons["t3"] = _t3(plan, placement)
    flow, reasons["flow"] = _flow(plan, placement)
    vocoder, reasons["vocoder"] = _vocoder(plan, placement)
    if plan.name == AUTO:
        reasons["windows"] = "for streaming"
    slots, reasons["slots"] = _slots(plan, placement)
    window_slots = _window_slots(plan, placement, flow)
    tf32 = plan.tf32 and placement.has_tf32
    given = replace(
        plan, t3=t3, flow=flow, vocoder=vocoder, slots=slots, window_slots=window_slots, tf32=tf32
    )
    return ResolvedPlan(
        given, str(placement.device), {name: why for name, why in reasons.items() if why}
    )


def compiled_kernels() -> str | None:
    """The name of the best compiled code for packed weights that runs here."""
    library = native.library()
    return None if library is None else Path(library._name).stem


def kernel_states() -> str:
    """Which compiled kernels there are, which of them run here, and why the others do not."""
    by_state: dict[str, list[str]] = {}
    for name, state in native.states().items():
        by_state.setdefault(state, []).append(name)
    return "; ".join(f"{state}: {', '.join(names)}" for state, names in by_state.items())


def _t3(plan: Plan, placement: Placement) -> tuple[Precision, str]:
    wanted = plan.t3
    if wanted == "fp32":
        return wanted, ""
    if wanted == "bf16" and (placement.is_host or placement.has_bf16):
        return wanted, ""
    if placement.is_host:
        kernels = compiled_kernels()
        if not kernels:
            return "fp32", _NO_KERNELS
        return ("int8", f"by {kernels}") if wanted == "auto" else (wanted, "")
    if placement.has_bf16:
        return "bf16", _elsewhere(wanted, "bfloat16 has half the bytes of fp32")
    return "fp32", _elsewhere(wanted, "no bfloat16 on this device")


def _elsewhere(wanted: str, reason: str) -> str:
    is_packed = wanted in ("int8", "int4")
    return f"{wanted} is read by the CPU alone; {reason}" if is_packed else reason


def _slots(plan: Plan, placement: Placement) -> tuple[int, str]:
    """On a CPU an unused slot costs as much as a used one; packed layers need none to batch."""
    if not plan.slots or placement.is_host:
        return 0, ""
    return plan.slots, "in one CUDA graph" if placement.has_graphs else ""


def _window_slots(plan: Plan, placement: Placement, flow: str) -> int:
    """A fixed number where a GPU waits for kernels anyway, and any number where the sums of a row
    do not depend on the others. Elsewhere, unused rows would cost as much as used ones."""
    if not plan.window_sizes:
        return plan.window_slots
    if not placement.is_host:
        return max(1, plan.window_slots) if placement.has_graphs else 1
    is_free = flow == "fp32" and deterministic.rows_are_independent()
    return 0 if is_free and plan.window_slots != 1 else 1


def _flow(plan: Plan, placement: Placement) -> tuple[Fused, str]:
    if plan.flow == "fp32":
        return "fp32", ""
    if placement.is_host:
        return _fused(plan.flow)
    if placement.has_bf16:
        return "bf16", "int8 is for the CPU alone" if plan.flow == "int8" else ""
    return "fp32", "no bfloat16 on this device"


def _vocoder(plan: Plan, placement: Placement) -> tuple[Fused, str]:
    if plan.vocoder == "fp32":
        return "fp32", ""
    if placement.is_host:
        return _fused(plan.vocoder)
    return "fp32", "a vocoder in bfloat16 or 8 bits needs the CPU"


def _fused(wanted: Fused) -> tuple[Fused, str]:
    """Flow and vocoder on the host, by compiled code: 8 bits where bfloat16 has no instructions."""
    if wanted == "bf16" and fused.has_amx():
        return "bf16", "by Intel AMX"
    library = native.int8()
    if library is None:
        return "fp32", f"{_NO_AMX}; {_NO_INT8}" if wanted == "bf16" else _NO_INT8
    by = f"by {Path(library._name).stem}"
    return "int8", f"{_NO_AMX}; 8 bits {by}" if wanted == "bf16" else by
