"""T3 as a model of vLLM. Guidance is no second request but twice the heads of one.

Both branches have the same tokens and positions and differ in their prompt alone. So a position is
one vector with both in it, (2 D); linear layers and norms see two rows of D, and only attention
sees one row with twice as many heads. What shares pages, is preempted or is cut into chunks is
always both of them.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from vllm.config import VllmConfig, get_current_vllm_config
from vllm.forward_context import get_forward_context
from vllm.model_executor.layers.attention import Attention
from vllm.model_executor.layers.logits_processor import LogitsProcessor
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead
from vllm.model_executor.models.llama import LlamaAttention, LlamaDecoderLayer, LlamaModel

from nightingale.backends.vllm.batch import KeyStore, registered, slots_of

N_BRANCHES = 2  # with text, and without
# Of T3, but not read here: the prompt comes as embeddings.
_OF_PROMPTS = ("cond_enc.", "text_emb.", "text_pos_emb.", "text_head.", "tfmr.embed_tokens.")
_NAMES = {
    "tfmr.": "model.",
    "speech_emb.": "model.embed_tokens.",
    "speech_head.": "lm_head.",
    "speech_pos_emb.emb.": "speech_pos_emb.",
}


class PairedAttention(LlamaAttention):
    """The branches of a position are heads of one; watched heads leave their keys in the store."""

    def __init__(self, config: Any, *args: Any, prefix: str = "", **more: Any) -> None:
        super().__init__(config, *args, prefix=prefix, **more)
        name = f"{prefix}.attn"
        vllm_config = get_current_vllm_config()
        vllm_config.compilation_config.static_forward_context.pop(name)  # that of one branch
        self.attn = Attention(
            N_BRANCHES * self.num_heads,
            self.head_dim,
            self.scaling,
            num_kv_heads=N_BRANCHES * self.num_kv_heads,
            cache_config=vllm_config.cache_config,
            prefix=name,
        )
        layer = int(prefix.split(".")[-2])
        heads = enumerate(config.alignment_heads)
        self.watched = [(number, head) for number, (at, head) in heads if at == layer]
        self.store: KeyStore | None = None

    def forward(self, positions: Tensor, hidden_states: Tensor) -> Tensor:
        qkv, _ = self.qkv_proj(hidden_states)  # (2 N, 3 D)
        q, k, v = qkv.split([self.q_size, self.kv_size, self.kv_size], dim=-1)
        q, k = self.rotary_emb(positions, q, k)
        n = q.shape[0] // N_BRANCHES
        if self.store is not None:
            self._watch(
                self.store, q.view(n, N_BRANCHES, -1)[:, 0], k.view(n, N_BRANCHES, -1)[:, 0]
            )
        out = self.attn(q.reshape(n, -1), k.reshape(n, -1), v.reshape(n, -1))
        projected, _ = self.o_proj(out.reshape(N_BRANCHES * n, -1))
        return projected  # type: ignore[no-any-return]

    def _watch(self, store: KeyStore, queries: Tensor, keys: Tensor) -> None:
        """Of the branch with text, (N, D)."""
        metadata = get_forward_context().attn_metadata
        if not metadata:
            return
        slots = metadata[self.attn.layer_name].slot_mapping[: len(keys)].long()
        for number, head in self.watched:
            of_head = slice(head * self.head_dim, (head + 1) * self.head_dim)
            store.write(number, slots, keys[:, of_head], queries[:, of_head])


class T3ForCausalLM(nn.Module):
    """What vLLM's runner calls: embeddings, a forward pass, logits."""

    packed_modules_mapping = {  # noqa: RUF012 - as vLLM declares it
        "qkv_proj": ["q_proj", "k_proj", "v_proj"],
        "gate_up_proj": ["gate_proj", "up_proj"],
    }

    def __init__(self, *, vllm_config: VllmConfig, prefix: str = "") -> None:  # noqa: ARG002
        super().__init__()
        config = vllm_config.model_config.hf_config
        branch = copy.deepcopy(config)
        branch.hidden_size //= N_BRANCHES
        branch.num_attention_heads //= N_BRANCHES
        branch.num_key_value_heads //= N_BRANCHES
        self._width, self._n_watched = branch.hidden_size, len(config.alignment_heads)
        self._cache_config = vllm_config.cache_config
        self._batch = registered(config.nightingale_batch)
        self.model = LlamaModel(
            vllm_config=vllm_config.with_hf_config(branch, architectures=["LlamaForCausalLM"]),
            prefix="model",
            layer_type=partial(LlamaDecoderLayer, attn_layer_type=PairedAttention),
        )
        self.lm_head = ParallelLMHead(config.vocab_size, self._width, prefix="lm_head")
        self.logits_processor = LogitsProcessor(config.vocab_size)
        self.speech_pos_emb = nn.Embedding(config.n_speech_positions, self._width)

    @staticmethod
    def get_model_state_cls() -> type:
        """Asked by the V2 model runner alone, whose kernels need a GPU."""
        from nightingale.backends.vllm.model_state import T3ModelState  # noqa: PLC0415

        return T3ModelState

    def embed_input_ids(self, input_ids: Tensor, *_: Any, **__: Any) -> Tensor:
        """(N,) -> (N, 2 D): both branches read the same speech tokens."""
        one = self.model.embed_input_ids(input_ids)
        return torch.cat([one] * N_BRANCHES, dim=-1)

    def forward(
        self,
        input_ids: Tensor | None,
        positions: Tensor,
        intermediate_tensors: Any = None,  # noqa: ARG002 - of pipeline parallelism
        inputs_embeds: Tensor | None = None,
        **_: Any,
    ) -> Tensor:
        if inputs_embeds is None:
            assert input_ids is not None
            inputs_embeds = self.embed_input_ids(input_ids)
        x = inputs_embeds
        n = x.shape[0]
        x = x.view(n, N_BRANCHES, self._width)
        metadata = get_forward_context().attn_metadata
        step = next(iter(metadata.values())) if metadata else None
        if step is not None:
            x = x + self._speech_positions(step, positions)[:, None]
            self._open_store(x.device)
        rows = positions.repeat_interleave(N_BRANCHES)
        hidden = self.model(None, rows, None, x.reshape(N_BRANCHES * n, self._width))
        if step is not None:
            self._look(step, positions)
        return hidden.view(n, N_BRANCHES * self._width)  # type: ignore[no-any-return]

    def _speech_positions(self, step: Any, positions: Tensor) -> Tensor:
        """(N, D): what generated tokens have and prompts do not, counted from the request's start.

        Every one of them: a request that was preempted reads its tokens again, many at once.
        """
        starts = step.query_start_loc
        n_rows = len(starts) - 1
        lengths = self._batch.prompt_lengths(n_rows, positions.device)
        lengths = lengths.repeat_interleave(starts[1:] - starts[:-1], output_size=len(positions))
        index = positions.long() - lengths + 1
        added: Tensor = self.speech_pos_emb(index.clamp(0, self.speech_pos_emb.num_embeddings - 1))
        return added * (index > 0)[:, None]

    def _open_store(self, device: torch.device) -> None:
        """As many slots as there are pages, which is known only after vLLM has measured memory."""
        n_blocks = self._cache_config.num_gpu_blocks
        layers = [layer.self_attn for layer in self.model.layers]
        watching = [attention for attention in layers if attention.watched]
        if not n_blocks or not watching or watching[0].store is not None:
            return
        n_slots = n_blocks * self._cache_config.block_size
        store = KeyStore(n_slots, self._n_watched, watching[0].head_dim, device)
        for attention in watching:
            attention.store = store

    def _look(self, step: Any, positions: Tensor) -> None:
        """Tell the batch how far each row has come, and where the watched heads of those look that
        will draw a token."""
        ends = (step.query_start_loc[1:] - 1).tolist()
        batch = self._batch
        batch.last = positions[ends].tolist()
        batch.looks = [None] * len(ends)
        store = next(
            (one.self_attn.store for one in self.model.layers if one.self_attn.store), None
        )
        if store is None:
            return
        for row, one in batch.drawing():
            if one.guard is not None:
                table, size = step.block_table[row], self._cache_config.block_size
                batch.looks[row] = store.look(slots_of(table, size, batch.last[row] + 1), ends[row])

    def compute_logits(self, hidden_states: Tensor, *_: Any) -> Tensor:
        """Guided, (B, V): away from what would be said without the text."""
        n = hidden_states.shape[0]
        rows = hidden_states.reshape(N_BRANCHES * n, self._width)
        logits = self.logits_processor(self.lm_head, rows).float()
        with_text, without = logits[0::N_BRANCHES], logits[1::N_BRANCHES]
        guided: Tensor = with_text + self._batch.cfg_weights(n, logits.device) * (
            with_text - without
        )
        return guided

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> set[str]:
        """By the names in the released file."""
        own = {"speech_pos_emb.weight": self.speech_pos_emb.weight, "lm_head.weight": None}
        done, layers = set(), []
        for name, tensor in weights:
            if name.startswith(_OF_PROMPTS):
                continue
            prefix = next(old for old in _NAMES if name.startswith(old))
            renamed = _NAMES[prefix] + name.removeprefix(prefix)
            if renamed not in own:
                layers.append((renamed.removeprefix("model."), tensor))
            elif renamed == "lm_head.weight":
                self.lm_head.weight_loader(self.lm_head.weight, tensor)
                done.add(renamed)
            else:
                self.speech_pos_emb.weight.data.copy_(tensor)
                done.add(renamed)
        return done | {f"model.{name}" for name in self.model.load_weights(layers)}
