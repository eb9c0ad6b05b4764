"""Runs scripts in the environment that holds the upstream package (scripts/upstream makes it)."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent

_ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "PYTHONWARNINGS": "ignore"}
if "PYTEST_XDIST_WORKER" in os.environ:  # threads that spin would wait for each other's core
    _ENVIRONMENT["OMP_NUM_THREADS"] = "1"

RunUpstream = Callable[[str, dict[str, Any]], Any]


def upstream_python() -> Path:
    python = Path(os.environ.get("UPSTREAM_PYTHON", ROOT / ".venv-upstream/bin/python"))
    if not python.exists():
        pytest.fail(f"no upstream environment at {python}; make it with scripts/upstream")
    return python


@pytest.fixture(scope="session")
def run_upstream(tmp_path_factory: pytest.TempPathFactory) -> RunUpstream:
    """`run_upstream(script, job)` runs tests/parity/<script> on the job and returns its answer."""
    python = upstream_python()

    def run(script: str, job: dict[str, Any]) -> Any:
        work = tmp_path_factory.mktemp("upstream")
        (work / "job.json").write_text(json.dumps(job), encoding="utf-8")
        done = subprocess.run(
            [python, HERE / script, work / "job.json", work / "answer.json"],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, **_ENVIRONMENT},
        )
        if done.returncode:
            pytest.fail(f"{script} failed in the upstream environment:\n{done.stderr[-4000:]}")
        return json.loads((work / "answer.json").read_text(encoding="utf-8"))

    return run
