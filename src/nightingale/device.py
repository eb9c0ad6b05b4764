"""Where to compute, in which precision, and why. The only file that names a kind of device.

A device's name can be checked without importing torch, which takes seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from nightingale.errors import OptionError

if TYPE_CHECKING:
    import torch

    HOST: torch.device  # where numbers are made before they go anywhere

NAMES = ("auto", "cuda", "mps", "cpu")


def __getattr__(name: str) -> Any:
    if name != "HOST":
        raise AttributeError(f"module 'nightingale.device' has no attribute {name!r}")
    import torch  # noqa: PLC0415

    return globals().setdefault(name, torch.device("cpu"))


def check_name(wanted: str) -> None:
    """Refuse a name that no machine has."""
    if wanted not in NAMES:
        raise OptionError(f"there is no device {wanted!r}; choose one of {', '.join(NAMES)}")


@dataclass(frozen=True, slots=True)
class Placement:
    """A choice that can explain itself."""

    device: torch.device
    dtype: torch.dtype
    reason: str


def choose(wanted: str = "auto") -> Placement:
    """Pick the device. Precision is that of the released weights until a plan says otherwise."""
    import torch  # noqa: PLC0415

    check_name(wanted)
    present = {
        "cuda": torch.cuda.is_available(),
        "mps": torch.backends.mps.is_available(),
        "cpu": True,
    }
    if wanted == "auto":
        name = next(name for name, here in present.items() if here)
        reason = f"{name} is the fastest device that torch finds here"
    elif present.get(wanted):
        name, reason = wanted, f"{wanted} was asked for"
    else:
        here = ", ".join(name for name, is_here in present.items() if is_here)
        raise OptionError(f"device {wanted!r} is not available here; this machine has: {here}")
    return Placement(torch.device(name), torch.float32, reason)
