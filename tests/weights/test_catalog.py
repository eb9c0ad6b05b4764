"""What the catalog promises about every model."""

from __future__ import annotations

import re

import pytest

from nightingale.errors import OptionError
from nightingale.weights.catalog import MODELS, Model, find

each_model = pytest.mark.parametrize("model", MODELS, ids=lambda model: model.name)
each_released_model = pytest.mark.parametrize(
    "model", [model for model in MODELS if not model.is_bundled], ids=lambda model: model.name
)

GPT2 = {
    "tokenizer.vocab",
    "tokenizer.merges",
    "tokenizer.added_tokens",
    "tokenizer.config",
    "tokenizer.special_tokens",
}


def test_every_released_model_is_there() -> None:
    assert [model.name for model in MODELS] == [
        "english",
        "multilingual-v2",
        "multilingual-v3",
        "multilingual-zh-cmn",
        "multilingual-es-mx-latam",
        "multilingual-es-es",
        "multilingual-pt-br",
        "multilingual-pt-pt",
        "multilingual-hi",
        "turbo",
        "nano",
        "fledgling",
    ]


@each_model
def test_a_model_is_complete(model: Model) -> None:
    roles = [part.role for part in model.parts]
    expected = {"t3", "s3gen", "voice_encoder", "voice"}
    expected |= GPT2 if model.family in ("turbo", "nano") else {"tokenizer"}
    expected |= {"cangjie"} if "zh" in model.languages else set()
    assert set(roles) == expected
    assert len(roles) == len(expected) == model.n_files


@each_released_model
def test_sums_are_sha256_and_only_packs_follow_a_branch(model: Model) -> None:
    sums = [part.sha256 for part in model.parts if part.sha256 is not None]
    assert all(re.fullmatch(r"[0-9a-f]{64}", known) for known in sums)
    is_pack = "Chatterbox-Multilingual-" in model.parts[0].repo
    assert model.is_pinned is not is_pack


def test_packs_bring_their_own_networks_and_borrow_the_rest() -> None:
    parts = {part.role: part for part in find("multilingual-zh-cmn").parts}
    own = {role for role, part in parts.items() if part.repo.endswith("Multilingual-zh-cmn")}
    assert own == {"t3", "s3gen", "tokenizer"}
    assert parts["t3"].path == "t3_zh_cmn.safetensors"
    assert parts["s3gen"].path == "s3gen_v3.safetensors"


def test_multilingual_means_what_upstream_loads_by_default() -> None:
    assert find("multilingual") is find("multilingual-v2")


def test_an_unknown_name_is_told_the_known_ones() -> None:
    with pytest.raises(OptionError, match=r"'nana'.*english.*nano.*multilingual"):
        find("nana")


def test_sizes_are_those_of_fp32() -> None:
    assert round(find("english").n_bytes / 1e9, 1) == 3.2
    assert round(find("nano").n_bytes / 1e9, 1) == 1.9


def test_only_v3_and_the_packs_are_read_in_full_case() -> None:
    forms = {model.name: model.spec.text_form for model in MODELS}
    full = {name for name, form in forms.items() if form == "full_case"}
    v3 = {name for name in forms if name.startswith("multilingual-")} - {"multilingual-v2"}
    assert full == v3
