"""Who speaks, and how: a voice and an exaggeration become the positions in front of every text.

English and Multilingual read 34 of them (speaker, 32 digests of the prompt, emotion); Turbo and
Nano read the speaker and the prompt tokens as they are, up to 376.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nightingale.backends.torch.t3.attention import split_heads
from nightingale.nn.deterministic import Linear

SPEAKER_DIM = 256
N_QUERIES = 32
N_HEADS = 4
NORM_EPS = 1e-5


class Conditioner(nn.Module):
    """The learned parts; `digests` says whether there are a perceiver and an emotion."""

    def __init__(self, d_model: int, *, digests: bool) -> None:
        super().__init__()
        self.spkr_enc = Linear(SPEAKER_DIM, d_model)
        self.perceiver: Perceiver | None = None
        self.emotion_adv_fc: Linear | None = None
        if digests:
            self.perceiver = Perceiver(d_model)
            self.emotion_adv_fc = Linear(1, d_model, bias=False)

    def forward(self, speaker: Tensor, prompt: Tensor, exaggeration: float) -> Tensor:
        """(256,) and embedded prompt (1, P, D) -> (1, n, D)"""
        who = self.spkr_enc(speaker.view(1, 1, SPEAKER_DIM))
        if self.perceiver is None or self.emotion_adv_fc is None:
            return torch.cat((who, prompt), dim=1)
        how = self.emotion_adv_fc(speaker.new_full((1, 1, 1), exaggeration))
        return torch.cat((who, self.perceiver(prompt), how), dim=1)


class Perceiver(nn.Module):
    """Learned queries look at the prompt, then at each other, through the same weights."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.pre_attention_query = nn.Parameter(torch.empty(1, N_QUERIES, d_model))
        nn.init.normal_(self.pre_attention_query, std=0.02)
        self.attn = CrossAttention(d_model)

    def forward(self, prompt: Tensor) -> Tensor:
        digests = self.attn(self.pre_attention_query, prompt)
        return self.attn(digests, digests)


class CrossAttention(nn.Module):
    """Attention of one sequence to another; both are normed, the residual is not."""

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(d_model, NORM_EPS)
        self.to_q = Linear(d_model, d_model)
        self.to_k = Linear(d_model, d_model)
        self.to_v = Linear(d_model, d_model)
        self.proj_out = Linear(d_model, d_model)

    def forward(self, lookers: Tensor, seen: Tensor) -> Tensor:
        seen_normed = self.norm(seen)
        out = F.scaled_dot_product_attention(
            split_heads(self.to_q(self.norm(lookers)), N_HEADS),
            split_heads(self.to_k(seen_normed), N_HEADS),
            split_heads(self.to_v(seen_normed), N_HEADS),
        )
        return lookers + self.proj_out(out.transpose(1, 2).flatten(2))
