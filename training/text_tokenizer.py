"""The text tokenizer of the small model: one token for each letter, in the released file's format.

Pieces of words, 512 of them, were tried: so small a model learns how letters sound from few hours
of speech, and does not have the hours for how each piece does. The rows of the file that code
counts on stay where they are: the end of text is 0, its start 255. Behind the letters stand the
sounds of a pronouncing dictionary, which no text spells.
"""

from __future__ import annotations

import json

from tokenizers import Tokenizer

from nightingale.text.tokenizer import END_OF_TEXT, START_OF_TEXT
from training.phonemes import SOUNDS
from training.work import work

FILE = work() / "tokenizer.json"
SPACE = 2
SPECIAL = {"[STOP]": END_OF_TEXT, "[UNK]": 1, "[SPACE]": SPACE, "[START]": START_OF_TEXT}
ALPHABET = "abcdefghijklmnopqrstuvwxyz.,?!'-;:\"()0123456789&%$"


def main() -> None:
    free = iter(i for i in range(START_OF_TEXT) if i not in SPECIAL.values())
    vocab = SPECIAL | {piece: next(free) for piece in (*ALPHABET, *SOUNDS)}
    added = [
        {"id": number, "content": name, "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": False, "special": True}
        for name, number in sorted(SPECIAL.items(), key=lambda item: item[1])
    ]  # fmt: skip
    model: dict[str, object] = {
        "type": "BPE", "unk_token": "[UNK]", "vocab": vocab, "merges": [],
        "dropout": None, "continuing_subword_prefix": None, "end_of_word_suffix": None,
        "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
    }  # fmt: skip
    whole = {
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added,
        "normalizer": {"type": "Lowercase"},
        "pre_tokenizer": {"type": "Punctuation", "behavior": "Isolated"},
        "post_processor": None, "decoder": None, "model": model,
    }  # fmt: skip
    FILE.write_text(json.dumps(whole, ensure_ascii=False, indent=1))
    print(f"{Tokenizer.from_file(str(FILE)).get_vocab_size()} letters and sounds: {FILE}")


if __name__ == "__main__":
    main()
