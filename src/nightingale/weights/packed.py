"""Weights that were packed into fewer bits, kept so that the next start finds them ready.

A packed file belongs to one source file as it is now: it is named after it, its size and its time
of change. Its header tells how it was made, a small file beside it what it must hash to. Knows
nothing of layers or of how packing is done.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from nightingale.errors import CorruptFileError
from nightingale.weights.manifest import digest_of, draft_of, sha256_of, write_text

VERSION = 1  # raise it when the same weights would be packed into other bytes


def place(source: Path, recipe: str, home: Path) -> Path:
    """Where the packed twin of a file lies, or would lie."""
    seen = source.stat()
    identity = f"{source.resolve()}|{seen.st_size}|{seen.st_mtime_ns}|{VERSION}"
    key = hashlib.sha256(identity.encode()).hexdigest()[:16]
    return home / "packed" / f"{source.stem}-{recipe}-{key}.safetensors"


def is_kept(target: Path, home: Path) -> bool:
    """Whether there is a packed file; one that was changed since it was written is refused."""
    try:
        wanted = _sum_of(target).read_text(encoding="utf-8").strip()
        found = digest_of(target, home)
    except FileNotFoundError:
        return False
    if found != wanted:
        raise CorruptFileError(
            f"{target} was changed after it was written; delete it and run `nightingale quantize`"
        )
    return True


def _sum_of(target: Path) -> Path:
    return target.with_name(f"{target.name}.sha256")


def keep(
    tensors: Mapping[str, Tensor], source: Path, recipe: Mapping[str, Any], target: Path
) -> None:
    """Write the packed twin, whole or not at all."""
    facts = {**recipe, "source": source.name, "packer": VERSION}
    target.parent.mkdir(parents=True, exist_ok=True)
    draft = draft_of(target)
    try:
        whole = {name: tensor.contiguous() for name, tensor in tensors.items()}
        save_file(whole, draft, {"nightingale": json.dumps(facts, sort_keys=True)})
        write_text(_sum_of(target), sha256_of(draft) + "\n")
        draft.replace(target)
    except SafetensorError as error:  # how its writer reports a full disk
        raise OSError(str(error)) from error
    finally:
        draft.unlink(missing_ok=True)
