"""Backends: what computes. Each is a folder that implements the protocols of `base`.

Others are found by the entry point group "nightingale.backends", so that a package can bring one.
"""

from __future__ import annotations

from importlib import import_module
from importlib.metadata import entry_points

from nightingale.backends.base import Backend
from nightingale.errors import OptionError

GROUP = "nightingale.backends"
_OWN = {
    "torch": "nightingale.backends.torch.backend",
    "mlx": "nightingale.backends.mlx.backend",
    "vllm": "nightingale.backends.vllm.backend",
}


def names() -> list[str]:
    """Of all that are installed, our own first."""
    return [*_OWN, *sorted({point.name for point in entry_points(group=GROUP)} - _OWN.keys())]


def check_name(name: str) -> None:
    """Refuse a name that nothing installed has, without importing anything."""
    if name not in names():
        raise OptionError(f"there is no backend {name!r}; installed are {', '.join(names())}")


def find(name: str) -> Backend:
    """A backend by its name, imported now."""
    check_name(name)
    if name in _OWN:
        backend: Backend = import_module(_OWN[name]).BACKEND
    else:
        backend = next(iter(entry_points(group=GROUP, name=name))).load()()
    return backend
