"""What torch's libraries keep of shapes that they met does not grow without end."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

CAPACITIES = ("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "LRU_CACHE_CAPACITY")
# Addresses are counted, not resident pages: a system may take those back that are seldom used.
CODE = """
import nightingale.backends.torch.backend, torch
from pathlib import Path

def held_mb():
    return int(Path("/proc/self/statm").read_text().split()[0]) * 4096 / 1e6

torch.set_num_threads(1)
weight = torch.randn(80, 80, 3)
with torch.inference_mode():
    for n in range(40, 640):
        torch.nn.functional.conv1d(torch.randn(1, 80, n), weight)
        if n == 60:
            before = held_mb()
print(held_mb() - before)
"""


def run(code: str, **environ: str) -> str:
    clean = {name: value for name, value in os.environ.items() if name not in CAPACITIES}
    command = [sys.executable, "-c", code]
    return subprocess.run(
        command, env=clean | environ, capture_output=True, check=True, text=True
    ).stdout


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="only Linux tells")
def test_kernels_of_600_shapes_are_not_all_kept_where_the_capacity_is_less() -> None:
    every_one, some = (
        float(run(CODE, **dict.fromkeys(CAPACITIES, capacity))) for capacity in ("4000", "100")
    )
    assert every_one > 24
    assert some < every_one / 2


def test_the_backend_limits_both_capacities_unless_they_are_given() -> None:
    code = "import os, nightingale.backends.torch.backend\n"
    code += f"print(*map(os.environ.get, {CAPACITIES}))"
    assert all(0 < int(capacity) <= 1024 for capacity in run(code).split())
    assert run(code, **dict.fromkeys(CAPACITIES, "7")).split() == ["7", "7"]
