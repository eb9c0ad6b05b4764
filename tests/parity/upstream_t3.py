"""Runs inside the upstream environment: random T3 weights, and what upstream makes of them.

argv: job.json answer.json. A job says what to build, which cases to speak and where to put tensors.
The analyzer that 0.1.7 wraps around Multilingual is gone from upstream's HEAD, and HEAD is what we
follow: `is_multilingual` is answered with no, which is the only thing that switches it on.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from safetensors.torch import load_file, save_file

sys.path.insert(0, str(Path(__file__).parents[2]))
from tests.random_weights import randomize


def import_upstream() -> tuple[Any, Any, Any]:
    """The T3 modules alone: the package's own front door also wants everything that makes sound."""
    from importlib.util import find_spec

    spec = find_spec("chatterbox")
    assert spec is not None
    package = ModuleType("chatterbox")
    package.__path__ = list(spec.submodule_search_locations or ())
    package.__spec__ = spec  # so that it is found again
    sys.modules["chatterbox"] = package
    from chatterbox.models.t3 import llama_configs, t3
    from chatterbox.models.t3.modules import perceiver

    return t3, llama_configs, perceiver


def build(sizes: dict[str, Any]) -> Any:
    """Upstream's T3 in the asked size."""
    t3, llama_configs, perceiver = import_upstream()
    is_llama = sizes["family"] in ("english", "multilingual")
    base = "LLAMA_520M_CONFIG_DICT" if is_llama else "GPT2_MEDIUM_CONFIG"
    config = dict(getattr(llama_configs, base))
    if is_llama:
        config |= {
            "hidden_size": sizes["d_model"],
            "intermediate_size": sizes["d_ffn"],
            "num_hidden_layers": sizes["n_layers"],
            "num_attention_heads": sizes["n_heads"],
            "num_key_value_heads": sizes["n_heads"],
        }
    else:
        config |= {
            "n_embd": sizes["d_model"],
            "hidden_size": sizes["d_model"],
            "n_head": sizes["n_heads"],
            "n_layer": sizes["n_layers"],
            "vocab_size": sizes["n_text"],
        }
    llama_configs.LLAMA_CONFIGS["ours"] = config

    class Config(t3.T3Config):  # type: ignore[misc,name-defined]
        is_multilingual = False

    hp = Config(text_tokens_dict_size=sizes["n_text"])
    hp.llama_config_name = "ours"
    if not is_llama:
        hp.speech_tokens_dict_size = sizes["n_speech"]
        hp.input_pos_emb = None
        hp.speech_cond_prompt_len = sizes["max_prompt"]
        hp.use_perceiver_resampler = False
        hp.emotion_adv = False
    model = t3.T3(hp)
    if is_llama and sizes["d_model"] != 1024:
        model.cond_enc.perceiver = perceiver.Perceiver(32, sizes["d_model"], sizes["d_model"], 4)
    return model.eval()


def speak(model: Any, case: dict[str, Any], voice: dict[str, torch.Tensor]) -> list[int]:
    from chatterbox.models.t3.modules.cond_enc import T3Cond

    options = case["options"]
    condition = T3Cond(
        speaker_emb=voice["speaker"].view(1, -1),
        cond_prompt_speech_tokens=voice["tokens"].view(1, -1),
        emotion_adv=options["exaggeration"] * torch.ones(1, 1, 1),
    )
    torch.manual_seed(case["seed"])
    shared = {name: options[name] for name in ("temperature", "top_p", "repetition_penalty")}
    text = torch.tensor([case["text"]])
    if not model.is_gpt:
        tokens = model.inference(
            t3_cond=condition,
            text_tokens=text.repeat(2, 1),
            max_new_tokens=case["n_tokens"],
            min_p=options["min_p"],
            cfg_weight=options["cfg_weight"],
            **shared,
        )
    else:
        tokens = model.inference_turbo(
            condition, text, top_k=options["top_k"], max_gen_len=case["n_tokens"] - 1, **shared
        )
    return tokens[0].tolist()  # type: ignore[no-any-return]


def main(job: dict[str, Any]) -> dict[str, Any]:
    torch.set_num_threads(job["threads"])
    model = build(job["sizes"])
    checkpoint = Path(job["checkpoint"])
    if checkpoint.exists():
        model.load_state_dict(load_file(checkpoint))
    else:
        randomize(model, job["seed"], job["sharpness"])
        save_file(model.state_dict(), checkpoint)
    heads: list[torch.Tensor] = []
    model.speech_head.register_forward_hook(lambda _m, _i, out: heads.append(out[:, -1].clone()))
    # The first call of a fresh process is now and then off by up to 3e-4; see docs/log.md.
    warm_up = job["cases"][0]
    speak(model, {**warm_up, "n_tokens": 2}, load_file(warm_up["voice"]))
    first_logits, tokens = {}, []
    for number, case in enumerate(job["cases"]):
        heads.clear()
        tokens.append(speak(model, case, load_file(case["voice"])))
        first_logits[str(number)] = heads[0].contiguous()
    save_file(first_logits, job["logits"])
    return {"tokens": tokens}


if __name__ == "__main__":
    answer = main(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    Path(sys.argv[2]).write_text(json.dumps(answer), encoding="utf-8")
