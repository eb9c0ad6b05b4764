"""Identities of T3: the fast ways of computing give what the slow ones give."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from torch import Tensor

from nightingale.backends.torch.t3.attention import Alignment
from nightingale.backends.torch.t3.llama import Llama, rotate
from nightingale.backends.torch.t3.model import T3, Utterance
from nightingale.backends.torch.t3.prefix import GRID, Prefixes
from nightingale.backends.torch.t3.sampling import guide
from nightingale.core import Family, Options
from nightingale.families import FAMILIES
from tests.tiny import LLAMA_HEADS, tiny_t3, tiny_text, tiny_voice

NAMES: list[Family] = ["english", "multilingual", "turbo", "nano"]
LLAMAS: list[Family] = ["english", "multilingual"]
EPSILON = 1e-9  # in float64, where only the order of summation differs


def tokens_of(model: T3, options: Options, text_seed: int = 0, voice_seed: int = 0) -> list[int]:
    prefix = model.prefix(tiny_voice(voice_seed), options.exaggeration)
    text = tiny_text(text_seed, family=model.config.family)
    return list(model.decode(text, prefix, options))


def whole_sequence(model: T3, text: list[int], said: list[int], weight: float) -> Tensor:
    """The slow twin: no cache, no prefix, both rows over the whole sequence; logits of the end."""
    voice = tiny_voice()
    prompt = model.speech_emb(torch.from_numpy(voice.tokens))[None]
    words = model.text_emb(torch.tensor(text))[None]
    uncond = torch.zeros_like(words)
    speech = model.speech_emb(torch.tensor([6561, *said]))[None]
    if model.config.is_llama:
        prompt = prompt + model.speech_pos_emb.emb.weight[: prompt.shape[1]]
        positions = model.text_pos_emb.emb.weight[: len(text)]
        words, uncond = words + positions, uncond + positions
        speech = speech + model.speech_pos_emb.emb.weight[: 1 + len(said)]
        speech = torch.cat([speech[:, :1], speech], dim=1)  # the start token stands there twice
    exaggeration = FAMILIES[model.config.family].options.exaggeration
    condition = model.cond_enc(torch.from_numpy(voice.speaker).to(prompt), prompt, exaggeration)
    rows = [torch.cat([condition, text_row, speech], dim=1) for text_row in (words, uncond)]
    logits = model.speech_head(model.tfmr(torch.cat(rows))[:, -1])
    return guide(logits, weight) if weight else logits[0]


@pytest.mark.parametrize(
    ("family", "weight"),
    [("english", 0.7), ("english", 0.0), ("multilingual", 0.7), ("turbo", 0.0), ("nano", 0.0)],
)
def test_cached_steps_give_the_logits_of_the_uncached_whole(family: Family, weight: float) -> None:
    model = tiny_t3(family).double()
    options = dataclasses.replace(FAMILIES[family].options, cfg_weight=weight)
    text = tiny_text(n_tokens=70, family=family)  # longer than a block of the uncond row
    prefix = model.prefix(tiny_voice(), options.exaggeration)
    utterance = Utterance(model, text, prefix, options, None)
    said: list[int] = []
    logits = utterance.first()
    for index, token in enumerate([17, 4000, 17, 6560, 3]):
        slow = whole_sequence(model, text, said, options.cfg_weight)
        assert torch.allclose(logits, slow, atol=EPSILON, rtol=0), f"after {said}"
        said.append(token)
        logits = utterance.next(torch.tensor(token), index)


@pytest.mark.slow
@pytest.mark.parametrize("family", NAMES)
def test_a_used_prefix_gives_the_tokens_of_a_fresh_one_to_the_bit(family: Family) -> None:
    """Earlier requests of the voice, shorter and longer ones, leave no trace in a later one."""
    model = tiny_t3(family)
    options = dataclasses.replace(FAMILIES[family].options, max_tokens=40)
    used = model.prefix(tiny_voice(), options.exaggeration)
    for n_tokens in (3, 50, 130, 200):
        list(model.decode(tiny_text(9, n_tokens, family), used, options))
    fresh = model.prefix(tiny_voice(), options.exaggeration)
    text = tiny_text(0, 90, family)
    logits = [Utterance(model, text, prefix, options, None).first() for prefix in (used, fresh)]
    assert torch.equal(*logits)
    assert list(model.decode(text, used, options)) == list(model.decode(text, fresh, options))


def test_the_uncond_row_is_read_once_a_voice() -> None:
    model = tiny_t3()
    prefix = model.prefix(tiny_voice(), 0.5)
    lengths = []
    for n_tokens in (10, 5, 60, 100, 20):
        next(model.decode(tiny_text(0, n_tokens), prefix, Options()))
        assert prefix.uncond
        lengths.append(prefix.uncond.length - prefix.voice.length)
    assert lengths == [GRID, GRID, GRID, 2 * GRID, 2 * GRID]


@pytest.mark.slow
@pytest.mark.parametrize("family", NAMES)
def test_interleaved_requests_say_what_each_says_alone(family: Family) -> None:
    model = tiny_t3(family)
    prefixes = Prefixes(model.prefix)
    base = dataclasses.replace(FAMILIES[family].options, max_tokens=60)
    requests = [
        (
            tiny_text(seed, 5 + 13 * seed, family),
            tiny_voice(seed % 2),
            dataclasses.replace(base, seed=seed),
        )
        for seed in range(4)
    ]
    alone = [
        list(model.decode(text, model.prefix(voice, base.exaggeration), options))
        for text, voice, options in requests
    ]
    streams = [
        model.decode(text, prefixes.get(voice, base.exaggeration), options)
        for text, voice, options in requests
    ]
    together: list[list[int]] = [[] for _ in requests]
    while any(len(got) < len(want) for got, want in zip(together, alone, strict=True)):
        for got, stream in zip(together, streams, strict=True):
            got.extend([token] if (token := next(stream, None)) is not None else [])
    assert together == alone


@pytest.mark.slow
@pytest.mark.parametrize("family", NAMES)
def test_the_same_request_says_the_same_and_another_seed_something_else(family: Family) -> None:
    model = tiny_t3(family)
    options = dataclasses.replace(FAMILIES[family].options, max_tokens=30)
    first = tokens_of(model, options)
    torch.manual_seed(123)  # the global generator has no say
    assert tokens_of(model, options) == first
    assert tokens_of(model, dataclasses.replace(options, seed=1)) != first
    assert tokens_of(model, options, text_seed=1) != first
    assert tokens_of(model, options, voice_seed=1) != first


@pytest.mark.slow
@pytest.mark.parametrize("family", LLAMAS)
def test_exaggeration_and_guidance_change_what_is_said(family: Family) -> None:
    model = tiny_t3(family)
    options = Options(max_tokens=30)
    first = tokens_of(model, options)
    assert tokens_of(model, dataclasses.replace(options, exaggeration=1.5)) != first
    assert tokens_of(model, dataclasses.replace(options, cfg_weight=0.0)) != first


def test_alignment_rows_are_the_attention_of_the_named_heads() -> None:
    """Against plain softmax over a recomputed whole, and without changing a single token."""
    model = tiny_t3()
    options = Options(max_tokens=6)
    text, prefix = tiny_text(), model.prefix(tiny_voice(), 0.5)
    alignment = Alignment(LLAMA_HEADS)
    tokens = list(model.decode(text, prefix, options, alignment=alignment))
    assert tokens == list(model.decode(text, prefix, options))
    assert len(alignment.rows) == len(tokens)
    for index, row in enumerate(alignment.rows):
        seen = _slow_attention(model, text, tokens[:index])
        expected = torch.stack([seen[pair][34 : 34 + len(text)] for pair in LLAMA_HEADS])
        assert torch.allclose(row, expected, atol=1e-5)


def _slow_attention(model: T3, text: list[int], said: list[int]) -> dict[tuple[int, int], Tensor]:
    """Attention of the last position in every layer and head, from q and k alone."""
    backbone = model.tfmr
    assert isinstance(backbone, Llama)
    attentions = [layer.get_submodule("self_attn") for layer in backbone.layers]
    inputs: list[Tensor] = []
    hooks = [
        attention.register_forward_pre_hook(lambda _m, args: inputs.append(args[0]))
        for attention in attentions
    ]
    whole_sequence(model, text, said, 0.5)
    for hook in hooks:
        hook.remove()
    found: dict[tuple[int, int], Tensor] = {}
    for layer, (attention, x) in enumerate(zip(attentions, inputs, strict=True)):
        n = x.shape[1]
        q, k = (
            attention.get_submodule(name)(x)[0].view(n, 2, 64).transpose(0, 1)
            for name in ("q_proj", "k_proj")
        )
        q = rotate(q, backbone.cos[:n], backbone.sin[:n])
        k = rotate(k, backbone.cos[:n], backbone.sin[:n])
        weights = (q[:, -1:] @ k.transpose(1, 2) / 8).softmax(-1)  # (H, 1, T)
        found |= {(layer, head): weights[head, 0] for head in range(2)}
    return found
