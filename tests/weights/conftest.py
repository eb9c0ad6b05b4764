"""A test hub, and processes that know no other hub and no other folders than the test's."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from nightingale.weights.catalog import Model
from tests.weights import tiny
from tests.weights.hub import Hub, serving

ROOT = Path(__file__).parents[2]


@pytest.fixture
def hub() -> Iterator[Hub]:
    with serving(Hub(files=dict(tiny.FILES))) as running:
        yield running


@dataclass(frozen=True)
class Machine:
    """One person's computer: their environment, their cache, their Nightingale."""

    folder: Path
    endpoint: str

    @property
    def home(self) -> Path:
        return self.folder / "nightingale"

    @property
    def cache(self) -> Path:
        return self.folder / "hf" / "hub"

    def environ(self, **more: str) -> dict[str, str]:
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "NIGHTINGALE_"))}
        ours = {
            "HF_ENDPOINT": self.endpoint,
            "HF_HOME": str(self.folder / "hf"),
            "NIGHTINGALE_HOME": str(self.home),
            "PYTHONWARNINGS": "error",
        }
        return {**clean, **ours, **more}

    def start(self, model: Model, **environ: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "tests.weights.tiny", model.name, self.home],
            cwd=ROOT,
            env=self.environ(**environ),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def pull(self, model: Model, **environ: str) -> dict[str, str]:
        return answer_of(self.start(model, **environ))

    def nightingale(self, *arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "nightingale", *arguments],
            env=self.environ(**environ),
            capture_output=True,
            text=True,
            check=False,
        )


def answer_of(process: subprocess.Popen[str]) -> dict[str, str]:
    out, err = process.communicate(timeout=60)
    assert not err, err
    answer: dict[str, str] = json.loads(out)
    return answer


@pytest.fixture
def machine(tmp_path: Path, hub: Hub) -> Machine:
    return Machine(tmp_path, hub.url)
