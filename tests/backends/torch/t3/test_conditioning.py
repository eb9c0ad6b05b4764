"""The positions in front of the text, against plain arithmetic."""

from __future__ import annotations

import torch
from torch import Tensor

from nightingale.backends.torch.t3.conditioning import N_HEADS, N_QUERIES, Conditioner
from tests.random_weights import randomize

D, P = 32, 9


def conditioner(*, digests: bool) -> Conditioner:
    made = Conditioner(D, digests=digests).requires_grad_(False)
    randomize(made, 3)
    return made.double()


def some(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(4), dtype=torch.float64)


def slow_glance(made: Conditioner, lookers: Tensor, seen: Tensor) -> Tensor:
    """Head by head; what was not normed is what is added to."""
    assert made.perceiver is not None
    attn = made.perceiver.attn
    q, k, v = attn.to_q(attn.norm(lookers)), attn.to_k(attn.norm(seen)), attn.to_v(attn.norm(seen))
    width = D // N_HEADS
    heads = []
    for h in range(N_HEADS):
        part = slice(h * width, (h + 1) * width)
        weights = (q[0, :, part] @ k[0, :, part].T / width**0.5).softmax(-1)
        heads.append(weights @ v[0, :, part])
    out: Tensor = lookers + attn.proj_out(torch.cat(heads, dim=-1))
    return out


def test_llama_reads_the_speaker_then_digests_of_the_prompt_then_the_emotion() -> None:
    made = conditioner(digests=True)
    assert made.perceiver is not None
    assert made.emotion_adv_fc is not None
    speaker, prompt = some(256), some(1, P, D)
    got = made(speaker, prompt, 0.7)
    assert got.shape == (1, 1 + N_QUERIES + 1, D)
    assert torch.allclose(got[0, 0], made.spkr_enc(speaker))
    assert torch.allclose(got[0, -1], made.emotion_adv_fc.weight[:, 0] * 0.7)
    digests = slow_glance(made, made.perceiver.pre_attention_query, prompt)
    assert torch.allclose(got[:, 1:-1], slow_glance(made, digests, digests), atol=1e-12)


def test_gpt2_reads_the_speaker_then_the_prompt_as_it_is() -> None:
    made = conditioner(digests=False)
    speaker, prompt = some(256), some(1, P, D)
    got = made(speaker, prompt, 0.7)
    assert torch.allclose(got[0, 0], made.spkr_enc(speaker))
    assert torch.equal(got[:, 1:], prompt)
