"""Each linter that `scripts/check` calls fails on a planted fault; clean files are its own part.

mkdocs has its planted faults in scripts/docs, links in test_link_check, axe in server/test_page.
"""

from __future__ import annotations

import shlex
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[1]
CHECK = (ROOT / "scripts/check").read_text(encoding="utf-8")
COMPOSE, SERVICE = "deploy/compose/compose.yaml", "deploy/kubernetes/service.yaml"
CI = ".github/workflows/ci.yml"

# words of a line in scripts/check -> the file, what is replaced in it by what, what the tool says
PLANTED = [
    ("hadolint", "deploy/Dockerfile", ("WORKDIR /data", "WORKDIR data"), "DL3000"),
    ("yamllint", COMPOSE, ("ports: [", "ports:  ["), "too many spaces after colon"),
    ("vendor.github-workflows", CI, ("    runs-on:", "    run-on:"), "run-on"),
    ("vendor.compose-spec", COMPOSE, ("read_only: true", "read_onli: true"), "read_onli"),
    ("kubernetes-validate", SERVICE, ("port: 8004", "port: many"), "many"),
    ("zizmor", CI, ("run: scripts/docs", "run: echo ${{ github.head_ref }}"), "template-injection"),
    ("scripts/actionlint", CI, ("needs: docs", "needs: nothing"), '"nothing" which does not exist'),
]


def command(words: str) -> list[str]:
    """The line of scripts/check with these words, without its files."""
    [line] = [line for line in CHECK.splitlines() if words in line and not line.startswith("#")]
    files = (".github", "deploy", ".pre-commit", ".yamllint", "mkdocs")
    return [word for word in shlex.split(line) if not word.startswith(files)]


@pytest.mark.parametrize(
    ("words", "file", "fault", "message"), PLANTED, ids=[row[0] for row in PLANTED]
)
def test_linters_notice_planted_faults(
    words: str, file: str, fault: tuple[str, str], message: str, tmp_path: Path
) -> None:
    text = (ROOT / file).read_text(encoding="utf-8")
    assert fault[0] in text
    planted = tmp_path / Path(file).name
    planted.write_text(text.replace(*fault), encoding="utf-8")
    done = subprocess.run(
        [*command(words), str(planted)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode != 0
    assert message in done.stdout + done.stderr
