"""The text tokenizer of the small model: lower case, pieces of words, the released file's format.

The rows of the file that code counts on stay where they are: the end of text is 0, its start 255.
"""

from __future__ import annotations

import json
from collections import Counter

from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from nightingale.text.tokenizer import END_OF_TEXT, START_OF_TEXT
from training import corpus
from training.work import work

N_TEXT = 512
FILE = work() / "tokenizer.json"
SPECIAL = {"[STOP]": END_OF_TEXT, "[UNK]": 1, "[SPACE]": 2, "[START]": START_OF_TEXT}
ALPHABET = "abcdefghijklmnopqrstuvwxyz.,?!'-;:\"()0123456789&%$"


def main() -> None:
    texts = sorted({u.text.lower() for u in corpus.training_set()})
    learner = Tokenizer(models.BPE(unk_token="[UNK]"))
    learner.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation()]
    )
    n_special = len(SPECIAL)
    trainer = trainers.BpeTrainer(
        vocab_size=N_TEXT - n_special + 1,  # its own [UNK] is one of ours
        initial_alphabet=list(ALPHABET),
        special_tokens=["[UNK]"],
        min_frequency=20,
        show_progress=False,
    )
    learner.train_from_iterator(texts, trainer)
    learned = json.loads(learner.to_str())["model"]
    free = iter(i for i in range(N_TEXT) if i not in SPECIAL.values())
    pieces = sorted(learned["vocab"], key=learned["vocab"].__getitem__)
    vocab = SPECIAL | {piece: next(free) for piece in pieces if piece != "[UNK]"}
    added = [
        {"id": number, "content": name, "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": False, "special": True}
        for name, number in sorted(SPECIAL.items(), key=lambda item: item[1])
    ]  # fmt: skip
    model = {
        "type": "BPE", "unk_token": "[UNK]", "vocab": vocab, "merges": learned["merges"],
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
    tokenizer = Tokenizer.from_file(str(FILE))
    lengths = Counter(
        len(tokenizer.encode(text.replace(" ", "[SPACE]")).ids) for text in texts[:500]
    )
    print(f"{len(vocab)} pieces, {sum(k * v for k, v in lengths.items()) / 500:.1f} a text: {FILE}")


if __name__ == "__main__":
    main()
