"""Reads the plain files that a tokenizer is made of, and names the file when one is not right."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from nightingale.errors import CorruptFileError, NotPulledError


def read_text(path: Path) -> str:
    """The file as text."""
    if not path.is_file():
        raise NotPulledError(f"{path} is not on this machine; `nightingale pull` fetches it")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise corrupt(path, f"is not text ({error})") from error


def read_json(path: Path) -> Any:
    """The file as JSON."""
    text = read_text(path)
    try:
        return json.loads(text)
    except ValueError as error:
        raise corrupt(path, f"is not JSON ({error})") from error


def read_object(path: Path) -> dict[str, Any]:
    """The file as a JSON object."""
    content = read_json(path)
    if not isinstance(content, dict):
        raise corrupt(path, f"holds a {type(content).__name__} where a JSON object belongs")
    return content


def corrupt(path: Path, why: str) -> CorruptFileError:
    """The error for a file that is there but is not what its name says."""
    return CorruptFileError(f"{path} {why}; delete it and fetch it again with `nightingale pull`")
