"""The house rules that a machine can check."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import nightingale

SOURCE = Path(nightingale.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))
EXAMPLES = SOURCE.parents[1] / "examples"
FRONT_DOORS = [
    Path(name)
    for name in (
        "__init__.py",
        "cli/__init__.py",
        "pipeline.py",
        "backends/torch/backend.py",
        "backends/mlx/backend.py",
        "backends/vllm/backend.py",
        "cli/fleet.py",
        "fleet/replica.py",  # a process of its own
    )
]
MAX_FILE, MAX_FUNCTION = 400, 60


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(SOURCE)))
def test_a_file_keeps_the_house_rules(file: Path) -> None:
    text = file.read_text(encoding="utf-8")
    tree = ast.parse(text)
    assert text.count("\n") <= MAX_FILE, "is there a second noun hiding in it?"
    assert ast.get_docstring(tree), "says what lives here"
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = (node.end_lineno or 0) - node.body[0].lineno
            assert body < MAX_FUNCTION, node.name
    if file.name not in ("device.py", "core.py"):
        named = re.findall(r"""["'](?:cuda|mps|cpu)\b""", text)
        assert not named, "devices are chosen in device.py; core.py lists what can be asked for"
    if file.relative_to(SOURCE) not in FRONT_DOORS:
        assert "os.environ" not in text, "the environment is read at the front doors alone"


def test_the_public_names_are_the_exported_ones() -> None:
    names = (
        "AsyncSpeechStream Audio AudioChunk Checkpoint Nightingale NightingaleError Options Plan"
    )
    names += " SpeechStream Voice VoiceLibrary Word __version__ encode"
    assert set(nightingale.__all__) == set(names.split())
    for name in nightingale.__all__:
        assert getattr(nightingale, name)
    with pytest.raises(AttributeError, match="has no attribute 'Nightingail'"):
        getattr(nightingale, "Nightingail")  # noqa: B009


@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.py")), ids=lambda file: file.name)
def test_an_example_imports_public_names_only(file: Path) -> None:
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("nightingale"):
            assert node.module == "nightingale", ast.unparse(node)
            assert {alias.name for alias in node.names} <= set(nightingale.__all__)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) != "self":
            assert not node.attr.startswith("_"), ast.unparse(node)


@pytest.mark.slow
def test_the_import_contract_is_kept_and_can_be_broken(tmp_path: Path) -> None:
    """Planted imports must be caught by the very same contract: of torch above the backend, of a
    sibling stage, of files in a stage, of a layer above."""
    root = SOURCE.parents[1]
    shutil.copytree(SOURCE, tmp_path / "src/nightingale")
    (tmp_path / "pyproject.toml").write_text((root / "pyproject.toml").read_text())
    lint = [str(Path(sys.executable).parent / "lint-imports"), "--no-cache"]
    environ = {"PYTHONPATH": str(tmp_path / "src"), "PATH": "/usr/bin:/bin"}

    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            lint, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False
        )

    assert run().returncode == 0, run().stdout
    for place, imported in (
        ("scheduler", "torch"),
        ("server/worker", "torch"),
        ("backends/torch/t3/decode", "nightingale.backends.torch.flow.model"),
        ("backends/torch/t3/decode", "nightingale.weights.load"),
        ("audio/mel", "nightingale.pipeline"),
        ("backends/torch/t3/decode", "mlx.core"),
        ("backends/torch/engine", "nightingale.backends.mlx.t3"),
    ):
        planted = tmp_path / f"src/nightingale/{place}.py"
        whole = planted.read_text()
        planted.write_text(f"import {imported}\n{whole}")
        broken = run()
        assert broken.returncode != 0, (place, imported)
        assert place.replace("/", ".") in broken.stdout
        planted.write_text(whole)
