"""Builds the byte-level tokenizer of Turbo and Nano from its five plain files.

How a typed token such as [laugh] is found in a text (whether it swallows the spaces around it) is
written in tokenizer_config.json, or, in older folders, follows from the two other small files.
"""

from __future__ import annotations

from math import inf
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

from nightingale.text.files import corrupt, read_object, read_text

END = "<|endoftext|>"
_ROLES = (
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
)
_DEFAULTS = dict.fromkeys(("bos_token", "eos_token", "unk_token"), END)


def build(folder: Path) -> Tokenizer:
    """A tokenizer that gives the ids written in the files, or an error that names the file."""
    config = read_object(folder / "tokenizer_config.json")
    tokenizer = Tokenizer(_pairs(folder))
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=bool(config.get("add_prefix_space")))
    if config.get("add_bos_token") or config.get("add_eos_token"):
        raise corrupt(
            folder / "tokenizer_config.json", "asks for start or end tokens around a text"
        )

    listed = read_object(folder / "added_tokens.json")
    special = read_object(folder / "special_tokens_map.json")
    try:
        named, added = _typed_tokens(config, listed, special)
    except (AttributeError, TypeError, ValueError) as error:
        raise corrupt(folder / "tokenizer_config.json", f"describes no token ({error})") from error
    tokenizer.add_tokens([added[number] for number in sorted(added)])
    contents = {token.content for token in added.values()}
    tokenizer.add_tokens([token for token in named if token.content not in contents])
    for content, number in [*listed.items(), *((t.content, n) for n, t in added.items())]:
        if (found := tokenizer.token_to_id(content)) != number:
            raise corrupt(
                folder / "added_tokens.json",
                f"or tokenizer_config.json gives {content!r} the id {number}, "
                f"but counted on from vocab.json it is {found}",
            )
    return tokenizer


def max_tokens(folder: Path) -> float:
    """The longest text that the files allow, infinite where they set no bound."""
    path = folder / "tokenizer_config.json"
    longest = read_object(path).get("model_max_length")
    if longest is None:
        return inf
    if not isinstance(longest, int | float) or longest < 1:
        raise corrupt(path, f"has the model_max_length {longest!r}, which is no number of tokens")
    return longest


def _pairs(folder: Path) -> BPE:
    vocab = read_object(folder / "vocab.json")
    if missing := set(ByteLevel.alphabet()).difference(vocab):
        raise corrupt(folder / "vocab.json", f"lacks {len(missing)} of the 256 byte symbols")
    lines = read_text(folder / "merges.txt").split("\n")
    merges = [tuple(line.split(" ")) for line in lines if line and not line.startswith("#version")]
    try:
        return BPE(vocab=vocab, merges=merges, fuse_unk=False)  # type: ignore[arg-type]
    except Exception as error:  # the library raises bare Exceptions
        raise corrupt(folder / "merges.txt", f"does not fit vocab.json ({error})") from error


def _typed_tokens(
    config: dict[str, Any], listed: dict[str, Any], special: dict[str, Any]
) -> tuple[list[AddedToken], dict[int, AddedToken]]:
    """The tokens that have a role, and the tokens added to the vocabulary, by id."""
    roles = {**_DEFAULTS, **{role: config[role] for role in _ROLES if config.get(role)}}
    described = config.get("added_tokens_decoder")
    if described is None:
        roles |= {role: special[role] for role in _ROLES if special.get(role)}
    named = [_special(token) for token in roles.values()]
    if described is not None:
        return named, {int(number): AddedToken(**token) for number, token in described.items()}
    contents = {token.content for token in named}
    return named, {
        int(number): _special(content) if content in contents else AddedToken(content)
        for content, number in listed.items()
    }


def _special(token: str | dict[str, Any]) -> AddedToken:
    if isinstance(token, str):
        return AddedToken(token, special=True)
    flags = {name: flag for name, flag in token.items() if name not in ("__type", "special")}
    return AddedToken(**flags, special=True)
