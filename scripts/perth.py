"""Makes src/nightingale/audio/perth.safetensors: the marking network out of Perth's wheel.

    pip download --no-deps resemble-perth==1.0.1
    python scripts/perth.py resemble_perth-1.0.1-py3-none-any.whl

Only the encoder is kept, in half precision; the detector stays with Perth. The same wheel gives
the same bytes, and both hashes are checked. The pickle inside is read without running it.
"""

from __future__ import annotations

import hashlib
import io
import json
import sys
import zipfile
from pathlib import Path

import torch
from safetensors.torch import save

INSIDE = "perth/perth_net/pretrained/implicit/perth_net_250000.pth.tar"
SOURCE_SHA256 = "a15bce457ebc53ce5e6c9c3f11df78cf7ee2bf9cdab0a798902135b4c4027670"
RESULT_SHA256 = "19d0857678426e586b8cd611d85dca1150d39e19ed8efe5b95a695ba6d2e400e"
TARGET = Path(__file__).parents[1] / "src/nightingale/audio/perth.safetensors"


def main(wheel: Path) -> None:
    pickle = zipfile.ZipFile(wheel).read(INSIDE)
    check(INSIDE, pickle, SOURCE_SHA256)
    state = torch.load(io.BytesIO(pickle), map_location="cpu", weights_only=True)["model"]
    tensors = {
        name.removeprefix("encoder."): tensor.half().contiguous()
        for name, tensor in state.items()
        if name.startswith("encoder.")
    }
    facts = {
        "what": "encoder of Perth's implicit watermark, resemble-perth 1.0.1",
        "licence": "MIT, Copyright (c) 2025 Resemble AI",
        "source_sha256": SOURCE_SHA256,
    }
    result = save(tensors, {"nightingale": json.dumps(facts)})
    check(TARGET.name, result, RESULT_SHA256)
    TARGET.write_bytes(result)


def check(name: str, data: bytes, sha256: str) -> None:
    found = hashlib.sha256(data).hexdigest()
    if found != sha256:
        sys.exit(f"{name} has SHA-256 {found}, expected {sha256}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
