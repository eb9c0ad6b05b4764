"""The public workflows run the scripts that there are, and a release has its conditions."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))
NEEDED = ("scripts", "src/nightingale/__init__.py", "CHANGELOG.md", "CITATION.cff", "SECURITY.md")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What `scripts/release_ready` reads, ready for version 9.8.7."""
    for name in (*NEEDED, "pyproject.toml"):
        source, target = ROOT / name, tmp_path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target)
            continue
        text = source.read_text().replace("nightingale.example", "nightingale.test")
        text = re.sub(r"^## \S+ \(unreleased\)", "## 9.8.7 (2030-01-02)", text, flags=re.MULTILINE)
        text = re.sub(r"^version: .*", "version: 9.8.7", text, flags=re.MULTILINE)
        text = re.sub(r'__version__ = ".*"', '__version__ = "9.8.7"', text)
        target.write_text(text)
    return tmp_path


def release_ready(checkout: Path, tag: str = "v9.8.7") -> subprocess.CompletedProcess[str]:
    command = [str(checkout / "scripts/release_ready"), tag]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda file: file.stem)
def test_workflows_call_scripts_that_exist(workflow: Path) -> None:
    called = re.findall(r"run: (?:sudo )?((?:scripts|\.ci)/\w+)", workflow.read_text())
    assert called
    assert not [name for name in called if not (ROOT / name).exists()]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda file: file.stem)
def test_actions_are_pinned_by_commit(workflow: Path) -> None:
    for action in re.findall(r"uses: (\S+)", workflow.read_text()):
        assert re.fullmatch(r"[\w/-]+@[0-9a-f]{40}", action), action


def test_a_release_is_ready_when_everything_names_its_version(checkout: Path) -> None:
    done = release_ready(checkout)
    assert done.returncode == 0, done.stderr
    assert "9.8.7 is ready" in done.stdout


def test_a_release_is_refused_with_another_tag_changelog_or_address(checkout: Path) -> None:
    assert "the tag is 'v1.0.0'" in release_ready(checkout, "v1.0.0").stderr
    for name, old, new, reason in (
        ("CITATION.cff", "9.8.7", "9.8.6", "CITATION.cff has another version"),
        ("CHANGELOG.md", "(2030-01-02)", "(unreleased)", "no dated heading"),
        ("pyproject.toml", "nightingale.test", "nightingale.example", "is not decided"),
    ):
        text = (checkout / name).read_text()
        (checkout / name).write_text(text.replace(old, new))
        done = release_ready(checkout)
        assert done.returncode == 1
        assert reason in done.stderr
        (checkout / name).write_text(text)
