"""Runs inside the upstream environment, and the other scripts in it: what they import, once.

A line of standard input is a list: a script, its two arguments, and a file for what it prints. Each
script gets a fork, so it leaves nothing behind for the next. Its exit code is the answer.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import traceback
from importlib import import_module
from pathlib import Path

# Under the scripts, and slow to import. Not upstream itself: each takes it apart in its own way.
PACKAGES = (
    "torch",
    "safetensors.torch",
    "transformers.generation.utils",
    "transformers.models.auto.tokenization_auto",
    "transformers.models.gpt2.modeling_gpt2",
    "transformers.models.llama.modeling_llama",
    "scipy.signal",
    "librosa.core",
    "librosa.filters",
    "librosa.effects",
    "torchaudio.compliance.kaldi",
    "torchaudio.transforms",
    "diffusers.models.attention",
    "diffusers.models.lora",
    "conformer",
    "s3tokenizer",
    "perth",
)


def run(script: str, arguments: list[str], log: str) -> int:
    """As `python script arguments` would."""
    with Path(log).open("w", encoding="utf-8") as file:
        os.dup2(file.fileno(), sys.stdout.fileno())
        os.dup2(file.fileno(), sys.stderr.fileno())
    sys.argv = [script, *arguments]
    sys.path[0] = str(Path(script).parent)
    try:
        runpy.run_path(script, run_name="__main__")
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def main() -> None:
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1)
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever packages print
    for name in PACKAGES:
        import_module(name)
    for line in sys.stdin:
        script, job, answer, log = json.loads(line)
        child = os.fork()
        if not child:
            os._exit(run(script, [job, answer], log))
        answers.write(f"{os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}\n")


if __name__ == "__main__":
    main()
