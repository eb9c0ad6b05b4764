"""Where MLX computes. The only file of this backend that names a kind of device."""

from __future__ import annotations

import shutil
from dataclasses import dataclass

import mlx.core as mx

from nightingale.core import AUTO_DEVICE, CPU, check_device
from nightingale.errors import OptionError

GPU = "gpu"


@dataclass(frozen=True, slots=True)
class MlxPlacement:
    """A choice that can explain itself."""

    name: str
    reason: str

    @property
    def is_gpu(self) -> bool:
        return self.name == GPU

    @property
    def compiles(self) -> bool:
        """Whether graphs can be fused: on a CPU, MLX writes C++ and calls a compiler."""
        return self.is_gpu or shutil.which("g++") is not None

    @property
    def hardware(self) -> str:
        info = mx.device_info(mx.gpu if self.is_gpu else mx.cpu)
        return str(info.get("device_name", self.name))

    def computing(self) -> mx.StreamContext:
        """A context in which this thread computes there."""
        return mx.stream(mx.gpu if self.is_gpu else mx.cpu)


def choose(wanted: str = AUTO_DEVICE) -> MlxPlacement:
    """MLX knows two devices; `auto` is the GPU where there is one."""
    check_device(wanted)
    has_gpu = mx.is_available(mx.gpu)
    if wanted == AUTO_DEVICE:
        if has_gpu:
            return MlxPlacement(GPU, "the GPU of this machine")
        return MlxPlacement(CPU, "MLX finds no GPU here; on this CPU it is for tests alone")
    if wanted not in (CPU, GPU) or (wanted == GPU and not has_gpu):
        present = f"{GPU}, {CPU}" if has_gpu else CPU
        raise OptionError(f"device {wanted!r} is not available to MLX here; it has: {present}")
    return MlxPlacement(wanted, f"{wanted} was asked for")
