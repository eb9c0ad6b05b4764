"""What decides the samples that a worker makes: two with equal fingerprints make the same.

Declared: protocol, build, model, SHA-256 of its files, plan, decoder, watermark, backend, device,
versions, instruction set. Measured: the SHA-256 of an utterance that each worker speaks at its
start, which also sees what nobody thought of declaring. A stream is resumed by a worker with an
equal fingerprint, and gives the same samples; or it is moved to one that differs in what does not
change its tokens and windows, and then its listener is informed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nightingale import __version__
from nightingale.server.worker_protocol import PROTOCOL
from nightingale.weights.manifest import digest_of

if TYPE_CHECKING:
    from nightingale.core import AudioChunk
    from nightingale.pipeline import Nightingale

Fingerprint = Mapping[str, Any]

# What must be equal for a token log to mean the same: which codes there are, where windows end.
_OF_TOKENS = ("protocol", "model", "weights", "decoder", "watermark", "windows")


def take(model: Nightingale, canary: Iterable[AudioChunk], home: Path) -> Fingerprint:
    """Of a model that is loaded; speaks the canary utterance."""
    components = model.components
    files = sorted(set(components.files.values()))
    samples = hashlib.sha256()
    for chunk in canary:
        samples.update(chunk.samples.astype("<f4", copy=False).tobytes())
    return {
        "protocol": PROTOCOL,
        "build": __version__,
        "model": components.model.name,
        "weights": {file.name: digest_of(file, home) for file in files},
        "plan": str(components.plan),
        "windows": [*components.plan.window_sizes, components.plan.trims_silence],
        "decoder": components.decoder,
        "watermark": components.watermarker is not None,
        "backend": components.backend,
        "device": components.loaded.device,
        **components.loaded.versions,
        "canary": samples.hexdigest(),
    }


def difference(first: Fingerprint, second: Fingerprint) -> tuple[str, ...]:
    """The names of what two workers do not have in common."""
    names = sorted(first.keys() | second.keys())
    return tuple(name for name in names if first.get(name) != second.get(name))


def digest(fingerprint: Fingerprint) -> str:
    """For a client, which compares it and shows it again: header X-Fingerprint."""
    known = json.dumps(dict(fingerprint), sort_keys=True)
    return hashlib.sha256(known.encode()).hexdigest()[:16]


def decisive(differing: tuple[str, ...]) -> tuple[str, ...]:
    """Those because of which a stream cannot be moved from the one to the other."""
    return tuple(name for name in differing if name in _OF_TOKENS)
