"""What decides the samples that a worker makes: two with equal fingerprints make the same.

Declared: protocol, build, model, SHA-256 of its files, plan, decoder, watermark, instruction set,
torch. Measured: the SHA-256 of an utterance that each worker speaks at its start, which also sees
what nobody thought of declaring. A stream is only resumed by a worker with an equal fingerprint.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from nightingale import __version__
from nightingale.server.wire import PROTOCOL

if TYPE_CHECKING:
    from nightingale.core import AudioChunk
    from nightingale.pipeline import Nightingale

Fingerprint = Mapping[str, Any]
_MAX_KNOWN = 256  # files whose sums are kept


def take(model: Nightingale, canary: Iterable[AudioChunk], home: Path) -> Fingerprint:
    """Of a model that is loaded; speaks the canary utterance."""
    import torch  # noqa: PLC0415

    from nightingale.nn import tiles  # noqa: PLC0415

    parts = model.parts
    sums = sha256_of(sorted(set(parts.files.values())), home)
    samples = hashlib.sha256()
    for chunk in canary:
        samples.update(chunk.samples.astype("<f4", copy=False).tobytes())
    return {
        "protocol": PROTOCOL,
        "build": __version__,
        "model": parts.model.name,
        "weights": {path.name: digest for path, digest in sums.items()},
        "plan": parts.plan.name,
        "decoder": parts.decoder,
        "watermark": parts.watermarker is not None,
        "device": f"{parts.placement.device} {parts.placement.dtype}",
        "instructions": torch.backends.cpu.get_cpu_capability() + "+tiles" * tiles.are_here(),
        "torch": torch.__version__,
        "canary": samples.hexdigest(),
    }


def difference(first: Fingerprint, second: Fingerprint) -> str:
    """The names of what two workers do not have in common; empty: nothing."""
    names = sorted(first.keys() | second.keys())
    return ", ".join(name for name in names if first.get(name) != second.get(name))


def sha256_of(files: Iterable[Path], home: Path) -> dict[Path, str]:
    """Sums of files. Gigabytes take seconds, so a sum is kept in the home folder, and made again
    when size, times or place of the file have changed."""
    kept = _read(home / "sums.json")
    sums: dict[Path, str] = {}
    for file in files:
        seen = file.stat()
        told = (seen.st_dev, seen.st_ino, seen.st_size, seen.st_mtime_ns, seen.st_ctime_ns)
        key = f"{file.resolve()} {' '.join(map(str, told))}"
        if key not in kept:
            with file.open("rb") as stream:
                kept[key] = hashlib.file_digest(stream, "sha256").hexdigest()
        sums[file] = kept[key] = kept.pop(key)  # the last used are kept
    _write(home / "sums.json", dict(list(kept.items())[-_MAX_KNOWN:]))
    return sums


def _read(path: Path) -> dict[str, str]:
    with suppress(OSError, ValueError):
        kept = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(kept, dict):
            return {str(key): str(value) for key, value in kept.items()}
    return {}


def _write(path: Path, kept: dict[str, str]) -> None:
    draft = path.with_name(f".{path.name}.{uuid4().hex[:8]}")
    with suppress(OSError):  # a home folder that cannot be written costs time, and nothing else
        draft.write_text(json.dumps(kept, indent=1), encoding="utf-8")
        draft.replace(path)
