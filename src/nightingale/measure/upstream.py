"""How fast upstream's own package is beside ours: same weights, texts and tokens, in one process.

Upstream pins old libraries, so it lives in an environment of its own, which `scripts/upstream`
makes in a checkout of this repository; the comparison is `benchmarks/against_upstream.py`.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from nightingale.errors import OptionError

CHECKOUT = Path(__file__).parents[3]


def against_upstream(
    python: Path | None, plan: str, n_rounds: int, stages: Sequence[str] = ()
) -> dict[str, Any]:
    """Milliseconds of each stage (or of these), theirs and ours, and their ratio."""
    script = CHECKOUT / "benchmarks" / "against_upstream.py"
    python = python or CHECKOUT / ".venv-upstream" / "bin" / "python"
    if not script.is_file() or not python.is_file():
        raise OptionError(
            "comparing with upstream needs a checkout of Nightingale, and in it `scripts/upstream`"
        )
    command = [str(python), str(script), "--plan", plan, "--rounds", str(n_rounds)]
    command += [f"--stage={stage}" for stage in stages]
    environment = {"PYTHONPATH": str(CHECKOUT / "src"), "PATH": "/usr/bin:/bin"}
    run = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if run.returncode != 0:
        raise OptionError(f"upstream could not be measured: {run.stderr.strip()[-300:]}")
    result: dict[str, Any] = json.loads(run.stdout.strip().splitlines()[-1])
    return result
