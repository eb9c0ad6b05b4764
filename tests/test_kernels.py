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
    for n in range(40, 3040):
        torch.nn.functional.conv1d(torch.randn(1, 80, n), weight)
        if n == 60:
            before = held_mb()
print(held_mb() - before)
"""


def grown_mb(**environ: str) -> float:
    clean = {name: value for name, value in os.environ.items() if name not in CAPACITIES}
    facts = subprocess.run(
        [sys.executable, "-c", CODE], env=clean | environ, capture_output=True, check=True
    )
    return float(facts.stdout)


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="only Linux tells")
def test_kernels_of_3000_shapes_are_not_all_kept_unless_asked_for() -> None:
    every_one = grown_mb(**dict.fromkeys(CAPACITIES, "4000"))
    assert every_one > 120
    assert grown_mb() < every_one / 2  # a third of them at most, by count
