"""Pickles in, safetensors out, once. The only file that opens a pickle, and only for its tensors.

A pickle can hold a program; here it is read in torch's weights-only way, which runs none. The
result is kept under the hash of its source, beside its own hash. Knows nothing of hub or stages.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from nightingale.errors import CorruptFileError
from nightingale.weights.manifest import draft_of, sha256_of, write_text

_VERSION = "1"  # raise it when the same pickle would give another file


def convert(source: Path, sha256: str, home: Path) -> Path:
    """The safetensors twin of a pickle whose hash is known; made when there is none yet."""
    target = home / "converted" / sha256 / f"{source.stem}.safetensors"
    facts = {"source": source.name, "sha256": sha256, "converter": _VERSION}
    # One entry, because the order of several is not defined: the same pickle, the same bytes.
    metadata = {"nightingale": json.dumps(facts)}
    if _is_whole(target, metadata):
        return target
    tensors = dict(_unique(source, _flat(source, _state(_unpickled(source)))))
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = draft_of(target)
    try:
        save_file(tensors, draft, metadata=metadata)
        write_text(_sum_of(target), sha256_of(draft))
        draft.replace(target)
    except SafetensorError as error:  # how its writer reports a full disk
        raise OSError(str(error)) from error
    finally:
        draft.unlink(missing_ok=True)
    return target


def _sum_of(target: Path) -> Path:
    return target.with_name(f"{target.name}.sha256")


def _is_whole(target: Path, metadata: dict[str, str]) -> bool:
    try:
        with safe_open(target, framework="pt") as file:
            is_ours = file.metadata() == metadata
        return is_ours and sha256_of(target) == _sum_of(target).read_text(encoding="utf-8")
    except (FileNotFoundError, SafetensorError):
        return False


def _unpickled(source: Path) -> Any:
    try:
        # Storages are read into memory and stay there, wherever they were saved from.
        return torch.load(source, map_location=lambda storage, _: storage, weights_only=True)
    except Exception as error:  # a foreign or damaged pickle can fail in any way
        raise CorruptFileError(
            f"{source} is refused: it is damaged, or holds code where only tensors may be. "
            "Delete it and pull the model again"
        ) from error


def _state(tree: Any) -> Any:
    """Some checkpoints are wrapped: {"model": [state, ...]}."""
    if isinstance(tree, dict) and isinstance(tree.get("model"), list) and tree["model"]:
        return tree["model"][0]
    return tree


def _flat(source: Path, tree: Any, name: str = "") -> Iterator[tuple[str, Tensor]]:
    """Nested dictionaries as dotted names; what is None is left out."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from _flat(source, value, f"{name}.{key}" if name else str(key))
    elif name and isinstance(tree, Tensor):
        # A copy of its own: safetensors keeps neither shared memory nor strides.
        yield name, tree.detach().clone(memory_format=torch.contiguous_format)
    elif name and isinstance(tree, bool | int | float):
        yield name, torch.tensor(tree)
    elif tree is not None or not name:
        raise CorruptFileError(
            f"{source} holds a {type(tree).__name__} at {name or 'its top'!r}, "
            "where only tensors, numbers and dictionaries of them are understood"
        )


def _unique(source: Path, items: Iterator[tuple[str, Tensor]]) -> Iterator[tuple[str, Tensor]]:
    seen = set[str]()
    for name, tensor in items:
        if name in seen:
            raise CorruptFileError(f"{source} holds two tensors called {name!r}")
        seen.add(name)
        yield name, tensor
