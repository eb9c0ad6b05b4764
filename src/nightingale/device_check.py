"""Whether a device can be trusted: what the self-test found there, run once and then kept.

The self-test is a process of its own (`measure/self_test`), which may die of what it finds. Its
result is kept by everything that could change it: our version, the backend and what it is made of.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from nightingale import __version__

TESTED = ("torch", "mlx")  # backends that compute the released weights
_FILE = "self_test.json"
_MAX_S = 300.0
_MAX_KEPT = 15


def fault(
    backend: str, device: str, facts: Mapping[str, str], home: Path, *, again: bool = False
) -> str:
    """Why a device is not to be used; empty: it passed."""
    key = json.dumps([__version__, backend, device, facts], sort_keys=True)
    kept = _read(home / _FILE)
    if again or key not in kept:
        last = list(kept.items())[-_MAX_KEPT:]
        kept = {**dict(last), key: run(backend, device)}
        with suppress(OSError):  # a home that cannot be written: it is run again next time
            home.mkdir(parents=True, exist_ok=True)
            (home / _FILE).write_text(json.dumps(kept), encoding="utf-8")
    return kept[key]


def run(backend: str, device: str) -> str:
    """Run it now."""
    command = [sys.executable, "-m", "nightingale.measure.self_test", backend, device]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_MAX_S, check=False)
    except subprocess.TimeoutExpired:
        return f"it took more than {_MAX_S:.0f} s"
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or [f"exit code {done.returncode}"]
        return last[0][:200]
    return done.stdout


def _read(file: Path) -> dict[str, str]:
    try:
        kept = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return kept if isinstance(kept, dict) else {}
