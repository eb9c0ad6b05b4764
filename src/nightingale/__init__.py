"""Nightingale: streaming text to speech for the Chatterbox family.

The public names, imported only when they are touched: `import nightingale` never imports torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOMES = {
    "NightingaleError": "nightingale.errors",
    "Options": "nightingale.core",
}

__all__ = ["NightingaleError", "Options", "__version__"]

if TYPE_CHECKING:
    from nightingale.core import Options
    from nightingale.errors import NightingaleError


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'nightingale' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
