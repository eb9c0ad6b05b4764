"""The choice of a device, what each gives of a plan, and that both can explain themselves."""

from __future__ import annotations

from dataclasses import fields, replace
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from nightingale.backends.torch import resolve as resolving
from nightingale.backends.torch.backend import BACKEND
from nightingale.core import AUTO, N_SLOTS, N_WINDOW_SLOTS, PLANS, Plan
from nightingale.errors import OptionError
from nightingale.nn import deterministic, device, fused, native
from nightingale.nn.device import Placement, choose


def test_a_device_that_was_asked_for_is_taken() -> None:
    placement = choose("cpu")
    assert placement.device == torch.device("cpu")
    assert placement.reason == "cpu was asked for"


def test_auto_takes_what_is_here_and_says_why() -> None:
    placement = choose()
    assert placement.device.type in placement.reason
    assert placement.dtype is torch.float32


def test_an_absent_device_is_refused_with_those_that_are_here() -> None:
    absent = "mps" if not torch.backends.mps.is_available() else "cuda"
    with pytest.raises(
        OptionError, match=rf"'{absent}' is not available here .*; this machine has: .*cpu"
    ):
        choose(absent)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("abacus", "no device 'abacus' in torch .*; this machine has: auto, .*cpu"),
        ("Not a device", "'Not a device' is not the name of a device; give one of auto, cpu, cuda"),
        ("cpu:7", "finds 1 of that kind, counted from 0.*; this machine has"),
        ("xpu", "'xpu' is not available here .torch does not find it"),
    ],
)
def test_an_unknown_device_is_refused_with_those_that_exist(name: str, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        choose(name)


class Found:
    """A machine on which torch finds other devices and the package was built otherwise."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._set = monkeypatch.setattr
        self.cuda(n_devices=0)
        self._set(torch.backends.mps, "is_available", lambda: False)
        self._set(resolving, "compiled_kernels", lambda: None)
        self._set(fused, "has_amx", lambda: False)
        self._set(native, "int8", lambda: None)

    def cuda(self, *, n_devices: int = 2, has_bf16: bool = True) -> None:
        self._set(torch.cuda, "is_available", lambda: n_devices > 0)
        self._set(torch.cuda, "device_count", lambda: n_devices)
        self._set(torch.cuda, "is_bf16_supported", lambda _emulated=True: has_bf16)

    def old_cuda(self) -> None:
        self.cuda(has_bf16=False)

    def mps(self, version: str = "2.13.0") -> None:
        self._set(torch.backends.mps, "is_available", lambda: True)
        self._set(torch, "__version__", version)

    def old_mps(self) -> None:
        self.mps("2.12.1")

    def kernels(self) -> None:
        self._set(resolving, "compiled_kernels", lambda: "stack_vnni")
        self._set(native, "int8", lambda: SimpleNamespace(_name="native/int8_vnni.so"))

    def with_amx(self) -> None:
        self.kernels()
        self._set(fused, "has_amx", lambda: True)

    def nothing(self) -> None:
        """A CPU without a compiler."""


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> Found:
    return Found(monkeypatch)


# what torch finds -> device, t3, flow, vocoder, TF32 of `auto`
AUTO_TABLE = {
    "nothing": ("cpu", "fp32", "fp32", "fp32", False),
    "kernels": ("cpu", "int8", "int8", "int8", False),
    "with_amx": ("cpu", "int8", "bf16", "bf16", False),
    "cuda": ("cuda", "bf16", "bf16", "fp32", True),
    "old_cuda": ("cuda", "fp32", "fp32", "fp32", True),
    "mps": ("mps", "fp32", "fp32", "fp32", False),
    "old_mps": ("cpu", "fp32", "fp32", "fp32", False),
}


@pytest.mark.parametrize("machine", AUTO_TABLE)
def test_auto_resolves_to_what_suits_the_device(found: Found, machine: str) -> None:
    getattr(found, machine)()
    for stream in (False, True):
        resolved = BACKEND.resolve(Plan.named(AUTO, stream=stream), "auto")
        plan = resolved.plan
        given = (resolved.device, plan.t3, plan.flow, plan.vocoder, plan.tf32)
        assert given == AUTO_TABLE[machine]
        assert plan.slots == (0 if resolved.device == "cpu" else N_SLOTS)
        assert bool(plan.window_sizes) is plan.prompt_cache is plan.trims_silence is stream
        assert {"t3", "device"} <= resolved.reasons.keys()
        for name in ("flow", "vocoder"):
            assert getattr(plan, name) == "bf16" or resolved.reasons[name]


@pytest.mark.parametrize("machine", ["nothing", "kernels", "with_amx"])
def test_auto_on_a_cpu_is_balanced_for_files_and_live_for_streams(
    found: Found, machine: str
) -> None:
    """But for the name: so a server that is started without a plan gives the bytes of `live`."""
    getattr(found, machine)()
    for stream, name in ((False, "balanced"), (True, "live")):
        auto = BACKEND.resolve(Plan.named(AUTO, stream=stream), "cpu").plan
        assert auto == replace(BACKEND.resolve(PLANS[name], "cpu").plan, name=AUTO)


@pytest.mark.parametrize("machine", AUTO_TABLE)
@pytest.mark.parametrize("name", PLANS)
def test_no_plan_is_refused_and_every_change_has_a_reason(
    found: Found, machine: str, name: str
) -> None:
    getattr(found, machine)()
    resolved = BACKEND.resolve(PLANS[name], "auto")
    for field in fields(Plan):
        wanted, given = (getattr(plan, field.name) for plan in (PLANS[name], resolved.plan))
        only_gpus_have = ("tf32", "slots", "window_slots")
        if wanted != given and field.name not in only_gpus_have:
            assert resolved.reasons[field.name] in str(resolved)
    assert resolved.plan == BACKEND.resolve(resolved.plan, resolved.device).plan
    if name == "reference":
        assert resolved.plan == PLANS[name]


def test_flow_and_vocoder_in_8_bits_are_for_cpus_that_have_the_kernels(
    found: Found, monkeypatch: pytest.MonkeyPatch
) -> None:
    found.cuda()
    wanted = replace(PLANS["live"], name="int8", flow="int8", vocoder="int8")
    on_cuda = BACKEND.resolve(wanted, "cuda")
    assert (on_cuda.plan.flow, on_cuda.plan.vocoder) == ("bf16", "fp32")
    assert {"flow", "vocoder"} <= on_cuda.reasons.keys()
    monkeypatch.setattr(native, "int8", lambda: None)
    without = BACKEND.resolve(wanted, "cpu")
    assert (without.plan.flow, without.plan.vocoder) == ("fp32", "fp32")
    assert "AVX2" in without.reasons["flow"] and "AVX2" in without.reasons["vocoder"]
    monkeypatch.setattr(native, "int8", lambda: SimpleNamespace(_name="int8_vnni.so"))
    given = BACKEND.resolve(wanted, "cpu")
    assert (given.plan.flow, given.plan.vocoder, given.plan.window_slots) == ("int8", "int8", 1)
    assert given.reasons["flow"] == given.reasons["vocoder"] == "by int8_vnni"
    assert "flow=int8; vocoder=int8" in str(given.plan)


def test_windows_share_a_pass_of_fixed_shape_on_cuda_and_of_any_on_the_cpu(
    found: Found, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nowhere else: where the number of rows decides the last bits, it is fixed or one."""
    monkeypatch.setattr(fused, "has_amx", lambda: False)
    found.cuda()
    found.mps()
    plans = {name: BACKEND.resolve(PLANS["live"], name).plan for name in ("cuda", "mps", "cpu")}
    assert {name: plan.window_slots for name, plan in plans.items()} == {
        "cuda": N_WINDOW_SLOTS, "mps": 1, "cpu": 0,
    }  # fmt: skip
    assert "; window_slots=4; " in str(plans["cuda"])
    alone = replace(PLANS["live"], window_slots=1)
    assert {BACKEND.resolve(alone, name).plan.window_slots for name in plans} == {1}
    monkeypatch.setattr(deterministic, "rows_are_independent", lambda: False)
    assert BACKEND.resolve(PLANS["live"], "cpu").plan.window_slots == 1


def test_packed_weights_become_bfloat16_on_cuda_and_fp32_elsewhere(found: Found) -> None:
    found.cuda()
    found.mps()
    for name, bits in (("balanced", "int8"), ("live-fast", "int4")):
        on_cuda = BACKEND.resolve(PLANS[name], "cuda:1")
        assert on_cuda.device == "cuda:1"
        assert on_cuda.plan.t3 == "bf16"
        assert on_cuda.reasons["t3"].startswith(f"{bits} is read by the CPU alone")
        assert BACKEND.resolve(PLANS[name], "mps").plan.t3 == "fp32"
    with pytest.raises(OptionError, match=r"'cuda:2' is not available here .torch finds 2"):
        choose("cuda:2")


def test_mps_needs_a_torch_that_computes_right_there(found: Found) -> None:
    found.old_mps()
    assert "not mps (it needs torch 2.13 or later, this is 2.12.1)" in choose().reason
    with pytest.raises(OptionError, match=r"'mps' is not available here \(it needs torch 2\.13 or"):
        choose("mps")


def test_the_line_of_a_plan_has_every_field_with_its_reason(found: Found) -> None:
    found.kernels()
    line = str(BACKEND.resolve(Plan.named(AUTO, stream=True), "cpu"))
    assert line == (
        "plan auto on cpu (cpu was asked for): t3=int8 (by stack_vnni), "
        "flow=int8 (bfloat16 needs Intel AMX here; 8 bits by int8_vnni), "
        "vocoder=int8 (bfloat16 needs Intel AMX here; 8 bits by int8_vnni), "
        "windows=8-12-14-17-21-25 (for streaming), lookahead=10, prompt_cache, trims_silence"
    )


def test_tf32_stays_off_once_a_model_must_be_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    switches: tuple[Any, ...] = torch.backends.cuda.matmul, torch.backends.cudnn
    before = [switch.allow_tf32 for switch in switches]
    monkeypatch.setattr(device, "_is_exact", False)
    try:
        for allowed, wanted in ((True, True), (False, False), (True, False)):
            device.allow_tf32(allowed)
            assert [switch.allow_tf32 for switch in switches] == [wanted, wanted]
    finally:
        for switch, was in zip(switches, before, strict=True):
            switch.allow_tf32 = was


def test_kernels_are_those_that_are_loaded() -> None:
    library = native.library()
    assert (resolving.compiled_kernels() in native.KINDS) is (library is not None)


def test_bf16_is_of_the_device_that_has_it() -> None:
    assert not Placement(torch.device("meta"), torch.float32, "").has_bf16
    assert choose("cpu").is_host
