"""Runs under the upstream environment: the real package's text ids for the given texts.

Only what surrounds the text code is stood in for: third-party packages that it never calls for
text, and the download of the Cangjie table, which is answered with the test's table.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import json
import os
import sys
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import MagicMock

# imported by upstream's modules at their top, not installed here, and not used for text
SOUND = ["librosa", "perth", "pyloudnorm", "torchaudio", "diffusers", "conformer"]
SOUND += ["s3tokenizer", "omegaconf", "scipy"]


class StandIns:
    """Finds an empty module for the packages above, so that `import` goes on."""

    def find_spec(self, name: str, *_: object) -> Any:
        if any(name == root or name.startswith(root + ".") for root in SOUND):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)  # type: ignore[arg-type]
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType:
        module = MagicMock(name=spec.name)
        module.__spec__, module.__path__ = spec, []
        return module

    def exec_module(self, module: ModuleType) -> None: ...


def load(name: str) -> Any:
    """One of upstream's modules."""
    return importlib.import_module(f"chatterbox.{name}")


def open_package() -> None:
    """Make upstream's modules importable without its __init__, which needs all of SOUND."""
    spec = find_spec("chatterbox")
    assert spec and spec.submodule_search_locations
    bare = ModuleType("chatterbox")
    bare.__path__ = list(spec.submodule_search_locations)
    sys.modules["chatterbox"] = bare
    load("models.t3")  # first: transformers looks for some of SOUND, and must see what is there
    sys.meta_path.insert(0, StandIns())


def main(job: dict[str, Any]) -> dict[str, Any]:
    os.environ["PKUSEG_HOME"] = job["pkuseg_home"]
    open_package()
    tokenizer = load("models.tokenizers.tokenizer")
    tokenizer.hf_hub_download = lambda **_: job["cangjie"]
    english, multilingual = load("tts").punc_norm, load("mtl_tts").punc_norm
    turbo = load("tts_turbo")

    mtl = tokenizer.MTLTokenizer(job["multilingual"])
    assert mtl.cangjie_converter.segmenter is not None
    en = tokenizer.EnTokenizer(job["english"])
    answer: dict[str, Any] = {
        "languages": list(load("mtl_tts").SUPPORTED_LANGUAGES),
        "multilingual": [
            mtl.text_to_tokens(multilingual(text), language_id=language)[0].tolist()
            for language, text in job["texts"]
        ],
        "english": [en.text_to_tokens(english(text))[0].tolist() for text in job["english_texts"]],
        "turbo": [],
    }
    for folder in job["gpt2"]:
        gpt2 = turbo.AutoTokenizer.from_pretrained(folder)
        gpt2.pad_token = gpt2.eos_token
        options = {"return_tensors": "pt", "padding": True, "truncation": True}
        texts = [turbo.punc_norm(text) for text in job["english_texts"]]
        answer["turbo"].append([gpt2(text, **options).input_ids[0].tolist() for text in texts])
    return answer


if __name__ == "__main__":
    job = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    Path(sys.argv[2]).write_text(json.dumps(main(job)), encoding="utf-8")
