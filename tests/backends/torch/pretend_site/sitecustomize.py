"""Found first by a Python whose PYTHONPATH has this folder: there, torch has the pretend device.

Set up as soon as torch is imported, and not before: the front of a server never imports it. With
PRETEND_AUTO=cuda or mps, it is the device that `auto` finds, and behaves as that one.
"""

import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

_FILE = Path(__file__).parents[1] / "pretend.py"
_AUTO = os.environ.get("PRETEND_AUTO")


class _Behind:
    """Sees the first import of a module, and does something behind it."""

    def __init__(self, name: str, change: Callable[[Any], None]) -> None:
        self._name, self._change = name, change

    def find_spec(self, name: str, _path: Any = None, _target: Any = None) -> Any:
        if name != self._name:
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        assert spec is not None
        assert spec.loader is not None
        run = spec.loader.exec_module

        def run_both(module: Any) -> None:
            run(module)
            self._change(module)

        spec.loader.exec_module = run_both  # type: ignore[method-assign]
        return spec


def _add_device(_torch: Any) -> None:
    found = importlib.util.spec_from_file_location("pretend", _FILE)
    assert found is not None
    assert found.loader is not None
    device = importlib.util.module_from_spec(found)
    sys.modules["pretend"] = device
    found.loader.exec_module(device)
    device.enter()
    device.machine.is_mps = _AUTO == "mps"


def _find_it_first(module: Any) -> None:
    module._BY_SPEED = ("pretend", "cpu")


sys.meta_path.insert(0, _Behind("torch", _add_device))
if _AUTO:
    sys.meta_path.insert(0, _Behind("nightingale.nn.device", _find_it_first))
