"""Versions with known vulnerabilities cannot be installed beside us."""

from __future__ import annotations

import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

# package: the first version without them, and what they are
FLOORS = {
    "torch": ("2.10", "CVE-2025-32434, CVE-2026-24747: weights_only runs code of a pickle"),
    "starlette": ("1.3", "CVE-2025-62727: Range; CVE-2026-48710, CVE-2026-54282: Host and path"),
    "python-multipart": ("0.0.31", "CVE-2024-53981, CVE-2026-24486, CVE-2026-40347, and others"),
    "h11": ("0.16", "CVE-2025-43859: chunked bodies that proxies read differently"),
}


def release(text: str) -> tuple[int, ...]:
    """Without what stands behind a plus sign."""
    return tuple(int(part) for part in text.partition("+")[0].split(".") if part.isdigit())


def floors(text: str) -> dict[str, str]:
    """All requirements of a pyproject.toml."""
    project = tomllib.loads(text)["project"]
    wanted = [*project["dependencies"]]
    for extra in project["optional-dependencies"].values():
        wanted += extra
    pairs = (requirement.partition(",")[0].partition(">=") for requirement in wanted)
    return {name: floor for name, _, floor in pairs}


@pytest.mark.parametrize("package", FLOORS)
def test_a_floor_is_above_known_vulnerabilities(package: str) -> None:
    text = (Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8")
    least, why = FLOORS[package]
    assert release(floors(text)[package]) >= release(least), why
    assert release(version(package)) >= release(least), why


def test_a_floor_that_is_too_low_is_noticed() -> None:
    text = '[project]\ndependencies = ["torch>=2.6,<3"]\n[project.optional-dependencies]\n'
    assert release(floors(text)["torch"]) < release(FLOORS["torch"][0])
