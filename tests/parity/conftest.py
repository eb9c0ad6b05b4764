"""Runs scripts in the environment that holds the upstream package (scripts/upstream makes it)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
HERE = Path(__file__).parent
HOST = "upstream_host.py"

_ENVIRONMENT = {"HF_HUB_OFFLINE": "1", "PYTHONWARNINGS": "ignore"}
if "PYTEST_XDIST_WORKER" in os.environ:  # threads that spin would wait for each other's core
    _ENVIRONMENT["OMP_NUM_THREADS"] = "1"

RunUpstream = Callable[[str, dict[str, Any]], Any]


def upstream_python() -> Path:
    python = Path(os.environ.get("UPSTREAM_PYTHON", ROOT / ".venv-upstream/bin/python"))
    if not python.exists():
        pytest.fail(f"no upstream environment at {python}; make it with scripts/upstream")
    return python


class Host:
    """The process that runs scripts; another one after a script that took it along."""

    def __init__(self, work: Path) -> None:
        self._log = work / "host.log"
        self._process: subprocess.Popen[str] | None = None

    def run(self, script: Path, job: Path, answer: Path, log: Path) -> int:
        process = self._process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(json.dumps([*map(str, (script, job, answer, log))]) + "\n")
            process.stdin.flush()
            return int(process.stdout.readline())
        except BaseException as error:  # its time limit, too
            self.end()
            if isinstance(error, OSError | ValueError):
                pytest.fail(f"{HOST} ended:\n{self._log.read_text()[-4000:]}")
            raise

    def end(self) -> None:
        if self._process:
            os.killpg(self._process.pid, signal.SIGKILL)  # and the script
            self._process.communicate()
            self._process = None

    def _start(self) -> subprocess.Popen[str]:
        with self._log.open("w") as log:
            return subprocess.Popen(
                [upstream_python(), HERE / HOST],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, **_ENVIRONMENT},
                start_new_session=True,
            )


@pytest.fixture(scope="session")
def run_upstream(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunUpstream]:
    """`run_upstream(script, job)` runs tests/parity/<script> on the job and returns its answer."""
    host = Host(tmp_path_factory.mktemp("host"))

    def run(script: str, job: dict[str, Any]) -> Any:
        work = tmp_path_factory.mktemp("upstream")
        (work / "job.json").write_text(json.dumps(job), encoding="utf-8")
        code = host.run(HERE / script, work / "job.json", work / "answer.json", work / "log")
        if code:
            said = (work / "log").read_text(encoding="utf-8")
            pytest.fail(f"{script} failed in the upstream environment:\n{said[-4000:]}")
        return json.loads((work / "answer.json").read_text(encoding="utf-8"))

    yield run
    host.end()
