"""Where torch computes, in which precision, and why. The only file that names a kind of device."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from nightingale.core import check_device
from nightingale.errors import OptionError

HOST = torch.device("cpu")  # where numbers are made before they go anywhere


@dataclass(frozen=True, slots=True)
class Placement:
    """A choice that can explain itself."""

    device: torch.device
    dtype: torch.dtype
    reason: str


def choose(wanted: str = "auto") -> Placement:
    """Pick the device. Precision is that of the released weights until a plan says otherwise."""
    check_device(wanted)
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
