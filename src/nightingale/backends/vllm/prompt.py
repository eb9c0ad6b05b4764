"""A request's prompt as vLLM takes it: one vector for each position, with both branches in it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from nightingale.backends.torch.t3.model import T3
from nightingale.core import T3Prompt


@torch.inference_mode()
def prompt_embeddings(
    t3: T3, prompt: T3Prompt, text: Sequence[int], exaggeration: float
) -> tuple[Tensor, int]:
    """(T, 2 D), the branch with text first; and how many positions the voice takes.

    The other branch reads the same voice and start, but positions in place of words.
    """
    voice, start = t3.embed_voice(prompt, exaggeration), t3.embed_start()
    words, positions = t3.embed_text(text), t3.text_pos_emb(slice(0, len(text)))[None]
    branches = [torch.cat((voice, row, start), dim=1)[0] for row in (words, positions)]
    return torch.cat(branches, dim=-1).cpu(), voice.shape[1]
