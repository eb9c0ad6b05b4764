"""The first Fledgling's T3 and its draft model: from letters to speech tokens.

Batches hold texts of one length, so the only padding is after the speech, where no loss is. Two
attention heads are supervised to follow the text; they are the alignment heads at inference.
"""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import cast

import numpy as np
import torch
import torch.nn.functional as F
import typer
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.utils import parametrize

from nightingale.backends.torch.t3.llama import Layer, Llama, rotate
from nightingale.backends.torch.t3.model import CONFIGS, T3
from nightingale.core import END_OF_SPEECH
from nightingale.text.tokenizer import FledglingTokenizer
from training import align, codes, corpus, speakers, text_tokenizer
from training.batch import IGNORED, Batch, places
from training.corpus import Utterance
from training.loop import Losses, Schedule, compile_blocks, load_ema, train
from training.speech_tokenizer import tokens_by_voice
from training.work import work

CONFIG = CONFIGS["fledgling"]
DRAFT = replace(CONFIG, n_layers=2, d_model=64, n_heads=2, d_ffn=192, alignment_heads=((1, 0),))
EXAGGERATION = 0.5
DROP_TEXT = 0.1
CORRUPTED = 0.08
NEAR = 3.0  # letters


class LetterDataset:
    """Texts, tokens and voices."""

    def __init__(self, n_positions: int) -> None:
        self._tokens = tokens_by_voice()
        self._vectors = speakers.vectors_by_voice()
        self._ends = align.word_ends_by_voice()
        tokenizer = FledglingTokenizer(text_tokenizer.FILE)
        self._by_voice: dict[str, list[Utterance]] = {}
        by_length: dict[int, list[tuple[Utterance, list[int]]]] = {}
        for utterance in corpus.training_set(more=True):
            if corpus.is_perturbed(utterance.voice) or corpus.is_extra(utterance.voice):
                continue  # reads too fast or too slowly
            if utterance.id in self._ends.get(utterance.voice, {}):
                ids = tokenizer.encode(utterance.text)
                by_length.setdefault(len(ids), []).append((utterance, ids))
                self._by_voice.setdefault(_who(utterance), []).append(utterance)
        self._batches = [
            group[at : at + size]
            for length, rows in by_length.items()
            for group in [sorted(rows, key=lambda row: row[0].n_tokens)]
            for size in [max(1, n_positions // (36 + length + group[len(group) // 2][0].n_tokens))]
            for at in range(0, len(group), size)
        ]

    @property
    def n_batches(self) -> int:
        return len(self._batches)

    def batch(self, step: int) -> Batch:
        epoch, index = divmod(step, len(self._batches))
        order = np.random.default_rng((13, epoch)).permutation(len(self._batches))
        random = np.random.default_rng((17, step))
        rows = self._batches[order[index]]
        n_prompt = int(random.integers(40, 150))
        longest = 1 + max(utterance.n_tokens for utterance, _ in rows)
        speech = torch.full((len(rows), longest), END_OF_SPEECH)
        wanted = torch.full((len(rows), longest), IGNORED)
        place = torch.zeros(len(rows), longest)
        prompts, vectors = [], []
        for row, (utterance, ids) in enumerate(rows):
            tokens = self._tokens[utterance.voice][utterance.id]
            speech[row, : len(tokens)] = torch.tensor(tokens)
            wanted[row, : len(tokens) + 1] = speech[row, : len(tokens) + 1]
            ends = self._ends[utterance.voice][utterance.id]
            place[row] = torch.from_numpy(places(ids, ends, len(tokens), longest))
            prompts.append(self._prompt(_who(utterance), n_prompt, random))
            of_voice = self._vectors[_who(utterance)]
            vectors.append(of_voice[random.integers(len(of_voice))])
        text = torch.tensor([ids for _, ids in rows])
        speaker = torch.from_numpy(np.stack(vectors)).float()
        return Batch(text, speech, wanted, place, torch.tensor(prompts), speaker)

    def _prompt(self, voice: str, n_tokens: int, random: np.random.Generator) -> list[int]:
        found: list[int] = []
        while len(found) < n_tokens:
            utterance = self._by_voice[voice][random.integers(len(self._by_voice[voice]))]
            found += self._tokens[utterance.voice][utterance.id]
        return found[:n_tokens]


def _who(utterance: Utterance) -> str:
    return "heart" if utterance.voice == corpus.MORE else utterance.voice


def hidden_states(t3: T3, batch: Batch, keep_text: Tensor) -> tuple[Tensor, int, int]:
    """(B, S, D) in front of every speech token, and where text begins and ends."""
    n_rows, n_text, n_speech = len(batch.text), batch.text.shape[1], batch.speech.shape[1]
    encoder = t3.cond_enc
    assert encoder.perceiver is not None
    assert encoder.emotion_adv_fc is not None
    prompt = t3.speech_emb(batch.prompt) + t3.speech_pos_emb(slice(0, batch.prompt.shape[1]))
    digests = encoder.perceiver.attn(
        encoder.perceiver.pre_attention_query.expand(n_rows, -1, -1), prompt
    )
    digests = encoder.perceiver.attn(digests, digests)
    emotion = encoder.emotion_adv_fc(torch.full((n_rows, 1, 1), EXAGGERATION))
    voice = torch.cat((encoder.spkr_enc(batch.speaker[:, None]), digests, emotion), dim=1)
    text = t3.text_emb(batch.text) * keep_text[:, None, None] + t3.text_pos_emb(slice(0, n_text))
    start = t3.embed_start().expand(n_rows, -1, -1)
    speech = t3.speech_emb(batch.speech[:, :-1]) + t3.speech_pos_emb(slice(1, n_speech))
    states = t3.tfmr(torch.cat((voice, text, start, speech), dim=1))
    n_voice = voice.shape[1]
    return states[:, -n_speech:], n_voice, n_voice + n_text


def token_loss(states: Tensor, head: Tensor, wanted: Tensor) -> Tensor:
    """Cross entropy of the next speech token."""
    guess = F.linear(states, head).flatten(0, 1).float()
    return F.cross_entropy(guess, wanted.flatten(), ignore_index=IGNORED)


def corrupted(batch: Batch) -> Batch:
    """With some speech tokens replaced at random, as sampling errors will be."""
    wrong = torch.rand(batch.speech.shape) < CORRUPTED
    drawn = batch.speech.flatten()[torch.randint(batch.speech.numel(), batch.speech.shape)]
    return replace(batch, speech=torch.where(wrong, drawn, batch.speech))


def layers_of(t3: T3) -> list[Layer]:
    return cast("list[Layer]", list(cast(Llama, t3.tfmr).layers))


class AlignmentProbe:
    """Attention of the alignment heads from speech to text."""

    def __init__(self, t3: T3) -> None:
        self._t3 = t3
        self._read: dict[int, Tensor] = {}
        for layer in {layer for layer, _ in t3.config.alignment_heads}:
            layers_of(t3)[layer].register_forward_pre_hook(functools.partial(self._keep, layer))

    def _keep(self, layer: int, _module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        self._read[layer] = inputs[0]

    def weights(self, layer: int, head: int, text: tuple[int, int], n_speech: int) -> Tensor:
        """(B, S, T): attention of each speech position to the text"""
        llama, block = cast(Llama, self._t3.tfmr), layers_of(self._t3)[layer]
        attention, norm = block.self_attn, block.input_layernorm
        x = norm(self._read[layer])
        d_head, n = x.shape[-1] // self._t3.config.n_heads, x.shape[1]
        rows = slice(head * d_head, (head + 1) * d_head)
        q, k = (
            rotate(F.linear(x, project.weight[rows]), llama.cos[:n], llama.sin[:n])
            for project in (attention.q_proj, attention.k_proj)
        )
        scores = q[:, -n_speech:] @ k.mT / d_head**0.5
        seen = torch.ones(n, n, dtype=torch.bool).tril()[-n_speech:]
        weights = scores.float().masked_fill(~seen, -torch.inf).softmax(-1)
        return weights[..., text[0] : text[1]]


def alignment_loss(weights: Tensor, place: Tensor, wanted: Tensor) -> Tensor:
    """Share of a head's attention that is not near the letter being spoken."""
    is_speech = wanted != IGNORED  # (B, S)
    far = torch.arange(weights.shape[2]) - place[..., None]  # (B, S, T)
    on_path = (weights * torch.exp(-far.square() / (2 * NEAR**2))).sum(-1)
    return ((1 - on_path) * is_speech).sum() / is_speech.sum().clamp(min=1)


class Objective:
    """The loss of a T3: next speech tokens, and alignment heads that follow the text."""

    def __init__(self, t3: T3, *, compiled: bool = False) -> None:
        self._t3, self._probe, self._token_loss = t3, AlignmentProbe(t3), token_loss
        if compiled:  # most of the loss is passes over seven thousand logits a token
            compile_blocks(layers_of(t3))
            self._token_loss = torch.compile(token_loss, dynamic=True)

    def losses(self, batch: Batch, *, plain: bool = False) -> Losses:
        """`plain`: without text dropout and corrupted tokens."""
        t3, n_speech = self._t3, batch.wanted.shape[1]
        keep_text = torch.rand(len(batch.text)) >= (0 if plain else DROP_TEXT)
        # The backward pass of fused attention is slow; factorized rows are added up once.
        with sdpa_kernel(SDPBackend.MATH), parametrize.cached():
            states, *text = hidden_states(t3, batch if plain else corrupted(batch), keep_text)
            head = t3.speech_head.weight
        speech = self._token_loss(states, head, batch.wanted)
        with_text = torch.where(keep_text[:, None], batch.wanted, IGNORED)
        weights = (
            self._probe.weights(*pair, (text[0], text[1]), n_speech)
            for pair in t3.config.alignment_heads
        )
        off = [alignment_loss(each, batch.place, with_text) for each in weights]
        alignment = torch.stack(off).mean()
        return {"loss": speech + 0.5 * alignment, "speech": speech, "alignment": alignment}


def main(
    draft: bool = False,
    n_steps: int = 13_500,
    minutes: float | None = None,
    threads: int = 1,
    n_positions: int = 2400,
    bf16: bool = False,
) -> None:
    torch.set_num_threads(threads)
    t3, dataset = T3(DRAFT if draft else CONFIG), LetterDataset(n_positions)
    init_small(t3)
    for layer in (t3.speech_emb, t3.speech_head):
        codes.add_digit_embedding(layer, 0.05)
    objective = Objective(t3, compiled=True)
    print(f"{dataset.n_batches} batches, {sum(p.numel() for p in t3.parameters()) / 1e6:.2f} M")

    schedule = Schedule(n_steps, lr=1.5e-3, weight_decay=0.05, bf16=bf16)
    folder = work() / ("draft" if draft else "t3")
    train(t3, lambda step: objective.losses(dataset.batch(step)), schedule, folder, minutes)


def init_small(t3: T3) -> None:
    """Small embeddings and output projections, so that the first predictions are near uniform."""
    with torch.no_grad():
        for name, tensor in t3.named_parameters():
            if "emb" in name:
                tensor.normal_(0, 0.05)
            elif name.endswith(("o_proj.weight", "down_proj.weight")):
                tensor.mul_(0.3)


def load(draft: bool = False) -> T3:
    t3 = T3(DRAFT if draft else CONFIG)
    for layer in (t3.speech_emb, t3.speech_head):
        codes.add_digit_embedding(layer, 0.05)
    load_ema(t3, work() / ("draft" if draft else "t3"))
    for layer in (t3.speech_emb, t3.speech_head):
        codes.merge_digit_embedding(layer)
    return t3


if __name__ == "__main__":
    typer.run(main)
