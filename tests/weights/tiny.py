"""Models of a few kilobytes for the test hub, and a process that pulls one of them.

The hub's library reads its environment when it is imported, so that every pull under another
environment is another process: `python -m tests.weights.tiny NAME HOME`, which answers in JSON.
"""

from __future__ import annotations

import hashlib
import json
import random
import sys
from pathlib import Path

from nightingale.errors import NightingaleError
from nightingale.weights.catalog import Model, RemoteFile
from tests.weights.hub import COMMIT

T3 = random.Random(1).randbytes(300_000)
TOKENIZER = b'{"version": "1.0"}'
FILES = {"org/tiny/t3.safetensors": T3, "org/tiny/tokenizer.json": TOKENIZER}


def _model(name: str, revision: str, t3_sha256: str | None = None) -> Model:
    parts = (
        RemoteFile("t3", "org/tiny", revision, "t3.safetensors", t3_sha256),
        RemoteFile("tokenizer", "org/tiny", revision, "tokenizer.json"),
    )
    return Model(name, "nano", "for tests", ("en",), 75_000, parts)


BRANCH = _model("branch", "main")
PINNED = _model("pinned", COMMIT, hashlib.sha256(T3).hexdigest())
MODELS = {model.name: model for model in (BRANCH, PINNED)}


def _main(name: str, home: str) -> dict[str, str]:
    from nightingale.weights.fetch import pull

    try:
        return {role: str(file) for role, file in pull(MODELS[name], Path(home)).items()}
    except NightingaleError as error:
        return {"error": type(error).__name__, "message": str(error)}


if __name__ == "__main__":
    print(json.dumps(_main(*sys.argv[1:])))
