"""Backends: what computes. Each is a folder that implements the protocols of `base`.

Others are found by the entry point group "nightingale.backends", so that a package can bring one.
"""

from __future__ import annotations

import platform
import sys
from importlib import import_module
from importlib.metadata import entry_points

from nightingale.backends.base import Backend
from nightingale.errors import OptionError

GROUP = "nightingale.backends"
AUTO = "auto"  # the first of `by_preference` that can be trusted
_OWN = {
    "torch": "nightingale.backends.torch.backend",
    "mlx": "nightingale.backends.mlx.backend",
    "vllm": "nightingale.backends.vllm.backend",
}


def names() -> list[str]:
    """Of all that are installed, our own first."""
    return [*_OWN, *sorted({point.name for point in entry_points(group=GROUP)} - _OWN.keys())]


def by_preference() -> tuple[str, ...]:
    """Those that `auto` chooses from, the best first."""
    return ("mlx", "torch") if is_apple_silicon() else ("torch",)


def is_apple_silicon() -> bool:
    return sys.platform == "darwin" and platform.machine() == "arm64"


def check_name(name: str) -> None:
    """Refuse a name that nothing installed has, without importing anything."""
    if name != AUTO:
        _check_installed(name)


def _check_installed(name: str) -> None:
    if name not in names():
        raise OptionError(
            f"there is no backend {name!r}; installed are {', '.join(names())}; {AUTO} chooses one"
        )


def find(name: str) -> Backend:
    """A backend by its name, imported now."""
    _check_installed(name)
    if name in _OWN:
        backend: Backend = import_module(_OWN[name]).BACKEND
    else:
        backend = next(iter(entry_points(group=GROUP, name=name))).load()()
    return backend
