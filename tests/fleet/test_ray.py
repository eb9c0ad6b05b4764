"""A real fleet, for a minute: `scripts/fleet` has Ray, other environments skip this."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("ray")

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_answers_of_a_fleet_are_those_of_a_server_without_ray() -> None:
    """A small version of what benchmarks/results/fleet-*.jsonl keeps."""
    flags = ["--requests", "60", "--clients", "16", "--kills", "2", "--minutes", "2"]
    command = [sys.executable, "-m", "benchmarks.fleet", *flags, "--quiet-requests", "3"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    line = json.loads(done.stdout.splitlines()[-1])
    assert line["done"] == line["identical"] == 60 and not line["wrong"]
    assert not line["unnamed"], line["failures_retried"]
