"""Makes small tokenizer files of the released files' format: the released ones are too big to keep.

The layout of the low ids follows the released English file as far as it is known: control tokens,
punctuation, a-z, then merges. Everything is a function of this file; nothing is random.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from nightingale.text.languages import LANGUAGES

CONTROL = {"[STOP]": 0, "[UNK]": 1, "[SPACE]": 2, "[START]": 255, "[PAD]": 705}
KNOWN_TAGS = {"[de]": 636, "[en]": 708, "[pl]": 717}
LETTERS = "!'(),-./:;?abcdefghijklmnopqrstuvwxyz"  # ids 3 to 39

# The one known text and its ids in the released Multilingual file, start and end left out.
KNOWN_TEXT = "The billing issue is resolved."
KNOWN_IDS = [708, 42, 2, 15, 216, 52, 2, 54, 133, 18, 2, 54, 2, 46, 123, 25, 35, 49, 9]
KNOWN_PIECES = {"the": 42, "re": 46, "ed": 49, "ing": 52}
KNOWN_PIECES |= {"is": 54, "so": 123, "su": 133, "ill": 216}

MERGES = """
t h|i n|th e|a n|e r|o u|r e|o n|a t|e d|e n|t o|in g|an d|i s|s o|s u|l l|i ll|a r|e s|d e|c h|s c
sc h|q u|T h|Th e|e \u0301|a \u0308|o \u0308|u \u0308|n \u0303|c \u0327|с т|н о|ст о|и \u0306
α ι|ο υ|ש ל|ا ل|ال م|क \u093e|ह \u0948|\u1112 \u1161|\u1112\u1161 \u11ab|\u110b \u1175|か \u3099
す 。|ン タ|0 0
"""
TAGS = ["[laughter]", "[sigh]", "[cough]", "[whisper]", "[SEP]", "[CLS]", "[MASK]"]
CANGJIE_SIGNS = "abcdefghijklmnopqrstuvwxyz0123456789."
# first and last character of each stretch
RANGES = """
AZ 09 "# %& «» ¿¿ ¡¡ \u0300\u0338 αω ая את \u05b0\u05bc ءي \u064b\u0652 ँह \u093c\u094d
\u1100\u1112 \u1161\u1175 \u11a8\u11c2 ぁん \u3099\u309a ァヴ 、。 ßß ææ øø łł ıı 一丁
"""
# 日 and 曰 share a code, as do 干, 于 and 士: the second and later ones get a number
CANGJIE = """
日 a|曰 a|月 b|明 ab|金 c|木 d|林 dd|水 e|火 f|土 g|干 mj|于 mj|士 mj|竹 h|戈 i|十 j|大 k|中 l|一 m
弓 n|人 o|心 p|手 q|口 r|尸 s|廿 t|山 u|女 v|田 w|卜 y|我 hqi|你 onf|他 opd|好 vnd|天 mk|今 oin
們 oanr|们 oils|去 gi|北 lmp|京 yrf|学 fbnd|習 smha|在 klg|的 hapi|是 amyo|不 mf|了 nn|有 kb|国 wmgi
"""


def multilingual(path: Path) -> Path:
    """A file with the 23 language tags, many scripts and the known text's pieces."""
    tags = [f"[{code}]" for code in LANGUAGES]
    tokens = [*tags, *[f"[cj_{sign}]" for sign in CANGJIE_SIGNS], *TAGS]
    return _write(path, _bpe(_scripts(), tokens))


def english(path: Path) -> Path:
    """A file without language tags, with capital letters."""
    letters = [chr(n) for n in range(ord("A"), ord("Z") + 1)] + list('"0123456789')
    return _write(path, _bpe(letters, TAGS))


def cangjie(path: Path) -> Path:
    """A table of "character<TAB>code" lines."""
    return _write(path, [entry.replace(" ", "\t") for entry in _entries(CANGJIE)])


def _entries(table: str) -> list[str]:
    return table.strip().replace("\n", "|").split("|")


def _scripts() -> list[str]:
    return [chr(n) for ends in RANGES.split() for n in range(ord(ends[0]), ord(ends[1]) + 1)]


def _bpe(letters: list[str], tokens: list[str]) -> dict[str, Any]:
    """Known pieces keep their ids; the rest fill the gaps in order."""
    usable = {*LETTERS, *letters}
    merges = [merge.split() for merge in _entries(MERGES) if set(merge) - {" "} <= usable]
    fixed = {**CONTROL, **{tag: KNOWN_TAGS[tag] for tag in KNOWN_TAGS if tag in tokens}}
    vocab = {**fixed, **dict(zip(LETTERS, range(3, 40), strict=True)), **KNOWN_PIECES}
    free = iter(sorted(set(range(3000)) - set(vocab.values())))
    for piece in [*("".join(merge) for merge in merges), *letters, *tokens]:
        if piece not in vocab:
            vocab[piece] = next(free)
    while len(vocab) <= max(vocab.values()):  # no holes, as in a real file
        vocab[f"[unused_{len(vocab)}]"] = next(free)
    added = [_added(piece, vocab[piece]) for piece in vocab if piece in {*fixed, *tokens}]
    return {
        "version": "1.0",
        "added_tokens": sorted(added, key=lambda token: int(token["id"])),
        "normalizer": None,
        "pre_tokenizer": {"type": "Whitespace"},
        "model": {"type": "BPE", "unk_token": "[UNK]", "vocab": vocab, "merges": merges},
    }


def _added(content: str, number: int) -> dict[str, Any]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": number, "content": content, "special": True, **flags}


def _write(path: Path, content: Any) -> Path:
    path.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
    return path
