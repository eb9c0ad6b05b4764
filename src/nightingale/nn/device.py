"""Where torch computes, in which precision, and why. The only file that names a kind of device."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from nightingale.core import AUTO_DEVICE, CPU, check_device
from nightingale.errors import OptionError

HOST = torch.device(CPU)  # where numbers are made before they go anywhere
_BY_SPEED = ("cuda", "mps", CPU)  # that `auto` looks for
# Older ones compute wrong numbers there: attention of few queries, weights that are not contiguous,
# remainders of 64-bit integers; torch 2.6 and 2.7 lack a kernel of the vocoder altogether.
_MIN_TORCH = {"mps": (2, 13)}


@dataclass(frozen=True, slots=True)
class Placement:
    """A choice that can explain itself."""

    device: torch.device
    dtype: torch.dtype  # that of the released weights, unless a plan says otherwise
    reason: str

    @property
    def is_host(self) -> bool:
        """Whether compiled code can read the weights."""
        return self.device.type == CPU

    @property
    def has_bf16(self) -> bool:
        """Whether products of bfloat16 are worth it there."""
        return self.device.type == "cuda" and torch.cuda.is_bf16_supported(False)

    @property
    def has_tf32(self) -> bool:
        return self.device.type == "cuda"

    @property
    def has_graphs(self) -> bool:
        """Whether a step of fixed shape can be captured, and replayed without Python."""
        return self.device.type == "cuda"


def choose(wanted: str = AUTO_DEVICE) -> Placement:
    """Pick the device: any that torch can compute on here, by its name for it."""
    check_device(wanted)
    if wanted == AUTO_DEVICE:
        return _fastest()
    device = _parsed(wanted)
    if fault := _fault(device):
        raise OptionError(f"device {wanted!r} is not available here{fault}; this machine has: "
                          f"{', '.join(_present())}")  # fmt: skip
    return Placement(device, torch.float32, f"{wanted} was asked for")


def _fastest() -> Placement:
    skipped = [
        f"not {name}{fault}"
        for name in _BY_SPEED
        if _is_found(name) and (fault := _fault(torch.device(name)))
    ]
    name = next(_present())
    reason = "; ".join([f"{name} is the fastest device that torch finds here", *skipped])
    return Placement(torch.device(name), torch.float32, reason)


def _present() -> Iterator[str]:
    return (name for name in _BY_SPEED if not _fault(torch.device(name)))


def _parsed(name: str) -> torch.device:
    try:
        return torch.device(name)
    except RuntimeError as error:
        present = ", ".join((AUTO_DEVICE, *_present()))
        raise OptionError(
            f"there is no device {name!r} in torch {torch.__version__}; this machine has: {present}"
        ) from error


def _fault(device: torch.device) -> str:
    """Why it cannot be used here; empty: it can."""
    if not _is_found(device.type):
        return " (torch does not find it)"
    floor = _MIN_TORCH.get(device.type, (0, 0))
    if _torch_version() < floor:
        needed = ".".join(map(str, floor))
        return f" (it needs torch {needed} or later, this is {torch.__version__})"
    n_devices = _n_devices(device.type)
    if device.index is not None and device.index >= n_devices:
        return f" (torch finds {n_devices} of that kind, counted from 0)"
    return ""


def _is_found(kind: str) -> bool:
    if kind == CPU:
        return True
    if kind == "mps":
        return torch.backends.mps.is_available()
    with suppress(RuntimeError, AttributeError):  # of a kind that this torch was not built for
        return bool(torch.get_device_module(kind).is_available())
    return False


def _n_devices(kind: str) -> int:
    with suppress(RuntimeError, AttributeError):
        return int(torch.get_device_module(kind).device_count())
    return 1


def _torch_version() -> tuple[int, ...]:
    return tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[:2])


def hardware(device: torch.device) -> str:
    """What the maker calls it; empty for the host, and where torch does not know."""
    with suppress(RuntimeError, AttributeError):
        if device.type != CPU:
            return str(torch.get_device_module(device).get_device_name(device))
    return ""


def synchronize(device: torch.device) -> None:
    """Wait until everything that was asked of a device is computed, so that clocks are right."""
    if device.type != CPU:
        torch.get_device_module(device).synchronize()


_is_exact = False  # a model that must be computed without TF32 was loaded in this process


def allow_tf32(allowed: bool) -> None:
    """Products of fp32 in TF32, where the hardware has it. Once refused, it stays off: the switch
    is the process's, and no other model may blur one that was promised to be exact."""
    global _is_exact  # noqa: PLW0603 - as torch's own switch is
    _is_exact |= not allowed
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = not _is_exact


def free_bytes(device: torch.device) -> int | None:
    """Memory that is left on a device; None: it does not say."""
    if device.type == CPU:
        return _free_host_bytes()
    with suppress(RuntimeError, AttributeError):
        if device.type == "mps":
            return torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory()
        return int(torch.get_device_module(device).mem_get_info(device)[0])
    return None


def _free_host_bytes() -> int | None:
    """What the system can give, and the control group that this process is in."""
    try:
        free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                free = int(line.split()[1]) * 1024
        group = Path("/sys/fs/cgroup")
        with suppress(OSError, ValueError):  # no limit, or none that can be read
            used = int((group / "memory.current").read_text())
            free = min(free, int((group / "memory.max").read_text()) - used)
    except (OSError, ValueError, AttributeError):
        return None
    return max(0, free)


def peak_bytes(device: torch.device) -> int | None:
    """The most memory that tensors took on a device; None: it does not count, or is the host."""
    if device.type == CPU:
        return None
    with suppress(RuntimeError, AttributeError):
        return int(torch.get_device_module(device).max_memory_allocated(device))
    return None
