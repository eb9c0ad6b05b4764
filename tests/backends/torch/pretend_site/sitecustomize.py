"""Found first by a Python whose PYTHONPATH has this folder: there, torch has the pretend device.

Set up as soon as torch is imported, and not before: the front of a server never imports it.
"""

import importlib.util
import sys
from pathlib import Path
from typing import Any

_FILE = Path(__file__).parents[1] / "pretend.py"


class _BehindTorch:
    """Sees the first import of torch, and adds the device behind it."""

    def find_spec(self, name: str, _path: Any = None, _target: Any = None) -> Any:
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec("torch")
        assert spec is not None
        assert spec.loader is not None
        run = spec.loader.exec_module

        def run_both(module: Any) -> None:
            run(module)
            found = importlib.util.spec_from_file_location("pretend", _FILE)
            assert found is not None
            assert found.loader is not None
            device = importlib.util.module_from_spec(found)
            sys.modules["pretend"] = device
            found.loader.exec_module(device)
            device.enter()

        spec.loader.exec_module = run_both  # type: ignore[method-assign]
        return spec


sys.meta_path.insert(0, _BehindTorch())
