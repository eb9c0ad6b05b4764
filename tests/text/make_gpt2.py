"""Makes small files of the Turbo and Nano tokenizer's format: bytes, a few merges, 19 tags."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tokenizers.pre_tokenizers import ByteLevel

TAGS = "angry fear surprised whispering dramatic narration crying happy sarcastic advertisement"
TAGS += " sigh shush cough groan sniff gasp chuckle laugh"
GPT2_TAGS = ["[clear throat]", *(f"[{tag}]" for tag in TAGS.split())]
END = "<|endoftext|>"

# Ġ is the byte-level name of the space; Ã © spell é
MERGES = (
    "Ġ t|h e|i n|r e|o n|Ġt he|e r|Ġ a|Ġ s|o u|Ġa n|Ġan d|in g|l a|Ã ©|Ġ Ġ|â Ģ|1 9|. .|H e|l l|ll o"
)
# tags that swallow a neighbouring space, or only match as a whole word
FLAGS = {"[sigh]": ["lstrip"], "[gasp]": ["rstrip"], "[laugh]": ["lstrip", "rstrip"]}
FLAGS |= {"[cough]": ["single_word"], "[sniff]": ["normalized"], "[happy]": ["special"]}


def gpt2(folder: Path, with_decoder: bool = True, **config: Any) -> Path:
    """Write the five files; without the decoder the tags' flags are the older defaults."""
    folder.mkdir(parents=True, exist_ok=True)
    merges = MERGES.split("|")
    pieces = [*sorted(ByteLevel.alphabet()), *(merge.replace(" ", "") for merge in merges), END]
    vocab = {piece: number for number, piece in enumerate(pieces)}
    added = {tag: len(vocab) + number for number, tag in enumerate(GPT2_TAGS)}
    config = {"tokenizer_class": "GPT2Tokenizer", "model_max_length": 1024, **config}
    config |= {"add_prefix_space": False, "bos_token": END, "eos_token": END, "unk_token": END}
    if with_decoder:
        flags = {END: ["normalized", "special"], **FLAGS}
        ids = {END: vocab[END], **added}
        config["added_tokens_decoder"] = {
            str(number): _token(content, flags.get(content, [])) for content, number in ids.items()
        }
    special = {"bos_token": END, "eos_token": _token(END, ["normalized"]), "unk_token": END}
    del special["eos_token"]["special"]  # type: ignore[attr-defined]
    _write(folder / "vocab.json", vocab)
    _write(folder / "added_tokens.json", added)
    _write(folder / "tokenizer_config.json", config)
    _write(folder / "special_tokens_map.json", special)
    text = "\n".join(["#version: 0.2", *merges]) + "\n"
    (folder / "merges.txt").write_text(text, encoding="utf-8")
    return folder


def _token(content: str, flags: list[str]) -> dict[str, Any]:
    names = ("lstrip", "normalized", "rstrip", "single_word", "special")
    return {"content": content, **{name: name in flags for name in names}}


def _write(path: Path, content: Any) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
