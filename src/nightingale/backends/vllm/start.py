"""Starts vLLM's engine in this process, with T3 as its model. The only file that configures it."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nightingale.backends.torch.t3 import llama
from nightingale.backends.torch.t3.conditioning import N_QUERIES
from nightingale.backends.torch.t3.model import T3Config
from nightingale.core import END_OF_SPEECH, START_OF_SPEECH

ARCHITECTURE = "NightingaleT3ForCausalLM"
_ROPE_ORIGINAL = 8192  # positions of the Llama that T3 has its rotary scaling from
N_VOICE, N_START = 1 + N_QUERIES + 1, 2  # positions before the text, and behind it


@dataclass(frozen=True, slots=True)
class EngineLimits:
    """Sizes of vLLM's engine. None: as vLLM chooses."""

    cache_bytes: int  # for pages of keys and values
    max_sequences: int = 16  # computed in one step
    max_batched_tokens: int | None = None  # positions read in one step: longer prompts are cut
    block_size: int | None = None  # positions of a page
    n_blocks: int | None = None  # instead of as many as there is memory for
    max_positions: int | None = None  # of one request; None: of the longest that T3 can take
    prefix_caching: bool = True


def start_engine(
    weights: Path, config: T3Config, dtype: str, limits: EngineLimits, batch_key: int
) -> Any:
    """An `LLMEngine` with the weights of a released file; `backend.prepare_process` comes first."""
    from vllm import EngineArgs, LLMEngine, ModelRegistry, envs  # noqa: PLC0415 - seconds

    from nightingale.backends.vllm.model import T3ForCausalLM  # noqa: PLC0415
    from nightingale.backends.vllm.sampler import T3Sampler  # noqa: PLC0415

    ModelRegistry.register_model(ARCHITECTURE, T3ForCausalLM)
    with _model_folder(weights, config, batch_key) as folder:
        return LLMEngine.from_engine_args(
            EngineArgs(
                model=str(folder),
                dtype=dtype,
                skip_tokenizer_init=True,
                enable_prompt_embeds=True,
                # The V2 runner refuses them; there, the model's state brings our sampler.
                logits_processors=None if envs.VLLM_USE_V2_MODEL_RUNNER else [T3Sampler],
                enforce_eager=True,
                async_scheduling=False,  # a step's token is known before the next is scheduled
                disable_log_stats=True,
                use_tqdm_on_load=False,
                max_model_len=limits.max_positions or max_positions(config),
                enable_chunked_prefill=True,
                enable_prefix_caching=limits.prefix_caching,
                kv_cache_memory_bytes=limits.cache_bytes,
                max_num_seqs=limits.max_sequences,
                max_num_batched_tokens=limits.max_batched_tokens,
                block_size=limits.block_size,
                num_gpu_blocks_override=limits.n_blocks,
            )
        )


def max_positions(config: T3Config) -> int:
    """Of the longest request: voice, text, start and speech."""
    return N_VOICE + config.max_text + 2 + N_START + config.max_speech


@contextmanager
def _model_folder(weights: Path, config: T3Config, batch_key: int) -> Iterator[Path]:
    """What vLLM reads a model from: its config, and the released weights under vLLM's name."""
    with tempfile.TemporaryDirectory(prefix="nightingale-vllm-") as name:
        folder = Path(name)
        (folder / "config.json").write_text(json.dumps(model_config(config, batch_key)))
        (folder / "model.safetensors").symlink_to(weights.resolve())
        yield folder


def model_config(config: T3Config, batch_key: int) -> dict[str, Any]:
    """A Llama of two branches: twice the width and the heads, the same layers."""
    return {
        "model_type": "llama",
        "architectures": [ARCHITECTURE],
        "hidden_size": 2 * config.d_model,
        "intermediate_size": config.d_ffn,
        "num_hidden_layers": config.n_layers,
        "num_attention_heads": 2 * config.n_heads,
        "num_key_value_heads": 2 * config.n_heads,
        "head_dim": config.d_model // config.n_heads,
        "vocab_size": config.n_speech,
        "max_position_embeddings": 2 * _ROPE_ORIGINAL,  # transformers wants more than that
        "rms_norm_eps": llama.NORM_EPS,
        "hidden_act": "silu",
        "bos_token_id": START_OF_SPEECH,
        "eos_token_id": END_OF_SPEECH,
        "tie_word_embeddings": False,
        "rope_parameters": {
            "rope_type": "llama3",
            "rope_theta": llama.ROPE_THETA,
            "factor": llama.ROPE_FACTOR,
            "low_freq_factor": _ROPE_ORIGINAL / llama.ROPE_LONGEST,
            "high_freq_factor": _ROPE_ORIGINAL / llama.ROPE_SHORTEST,
            "original_max_position_embeddings": _ROPE_ORIGINAL,
        },
        "alignment_heads": [list(pair) for pair in config.alignment_heads],
        "n_speech_positions": config.max_speech + 4,
        "nightingale_batch": batch_key,
    }
