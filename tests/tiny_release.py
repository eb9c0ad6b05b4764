"""A whole small model on disk, in the layout and under the file names of a release.

Files of ours tell their sizes in their header, so that everything is loaded as a real one is.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from nightingale.backends.torch.flow.model import CONFIGS as FLOWS
from nightingale.backends.torch.flow.model import Decoder, Flow
from nightingale.backends.torch.t3.model import CONFIGS, T3
from nightingale.backends.torch.vocoder.model import Vocoder, VocoderConfig
from nightingale.core import Family
from nightingale.voice.speaker_encoder import SpeakerEncoder
from nightingale.voice.speech_tokenizer import SpeechTokenizer, SpeechTokenizerConfig
from nightingale.voice.xvector import XVector, XVectorConfig
from nightingale.weights import catalog
from tests.backends.torch.flow.random_weights import randomize as randomize_flow
from tests.backends.torch.flow.tiny import tiny_config, tiny_prompt
from tests.backends.torch.vocoder.small import randomize as randomize_vocoder
from tests.backends.torch.vocoder.small import small_vocoder
from tests.random_weights import randomize
from tests.text import make_gpt2, make_tokenizers
from tests.tiny import TINY, tiny_voice

Releases = Callable[[str], Path]  # the fixture `releases`: by the name of a catalog model

TOKENIZER = SpeechTokenizerConfig(n_layers=1, d_model=64)
XVECTOR = XVectorConfig(n_planes=2, n_channels=8, growth=4, n_layers=(1, 1, 1))


def release_flow(decoder: Decoder) -> Flow:
    """Every kind of layer once: whoever needs more of them tests the flow, not a release."""
    config = tiny_config(decoder)
    estimator = dataclasses.replace(config.estimator, n_mid_blocks=1, n_transformers=1)
    encoder = dataclasses.replace(config.encoder, n_layers=1, n_up_layers=1)
    flow = Flow(dataclasses.replace(config, encoder=encoder, estimator=estimator))
    randomize_flow(flow, 0)
    return flow.eval().requires_grad_(False)


def make_release(folder: Path, name: str, *, full_size: bool = False) -> Path:
    """Write the small twin of a catalog model, or one as large as life; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    model = catalog.find(name)
    paths = {part.role: folder / part.path for part in model.parts}
    write_t3, write_s3gen = (_full_t3, full_s3gen) if full_size else (_write_t3, _write_s3gen)
    write_t3(paths["t3"], model.family)
    meanflow = model.family in ("turbo", "nano")
    write_s3gen(paths["s3gen"], meanflow=meanflow)
    _write(paths["voice_encoder"], SpeakerEncoder().state_dict(), {})
    _write(paths["voice"], _conds(375 if meanflow else 150, 157 if full_size else 20), {})
    if model.family in ("english", "fledgling"):
        make_tokenizers.english(paths["tokenizer"])
    elif model.family == "multilingual":
        make_tokenizers.multilingual(paths["tokenizer"])
        if "cangjie" in paths:
            make_tokenizers.cangjie(paths["cangjie"])
    else:
        make_gpt2.gpt2(folder)
    return folder


def _write_t3(file: Path, family: Family) -> None:
    model = T3(dataclasses.replace(TINY[family], n_text=1024))
    randomize(model, 5)
    model.speech_head.weight.data[6561:] = 0  # control tokens are rare in real models
    _write(file, model.state_dict(), {"t3": model.config})


def _write_s3gen(file: Path, *, meanflow: bool) -> None:
    torch.manual_seed(6)
    parts: dict[str, torch.nn.Module] = {
        "flow": release_flow("meanflow" if meanflow else "standard"),
        "mel2wav": small_vocoder(),
        "tokenizer": SpeechTokenizer(TOKENIZER),
        "speaker_encoder": XVector(XVECTOR),
    }
    _write(
        file,
        _named(parts),
        {
            "flow": parts["flow"].config,
            "mel2wav": parts["mel2wav"].config,
            "tokenizer": TOKENIZER,
            "speaker_encoder": XVECTOR,
        },
    )


def _full_t3(file: Path, family: Family) -> None:
    model = T3(CONFIGS[family])
    randomize(model, 5)
    model.speech_head.weight.data[6561:] = 0
    _write(file, model.state_dict(), {})


def full_s3gen(file: Path, *, meanflow: bool) -> None:
    """As the released file is, but for weight norm, which is folded already."""
    flow, vocoder = Flow(FLOWS["meanflow" if meanflow else "standard"]), Vocoder(VocoderConfig())
    randomize_flow(flow, 6)
    randomize_vocoder(vocoder, 6)
    torch.manual_seed(6)
    parts = {
        "flow": flow,
        "mel2wav": vocoder,
        "tokenizer": SpeechTokenizer(),
        "speaker_encoder": XVector(),
    }
    _write(file, _named(parts), {})


def _named(parts: dict[str, torch.nn.Module]) -> dict[str, Tensor]:
    return {
        f"{part}.{name}": tensor
        for part, module in parts.items()
        for name, tensor in module.state_dict().items()
    }


def _conds(n_prompt: int, n_flow: int) -> dict[str, Any]:
    """The released voice: a pickle of two dictionaries."""
    t3, gen = tiny_voice(n_tokens=n_prompt), tiny_prompt(n_tokens=n_flow)
    return {
        "t3": {
            "speaker_emb": torch.from_numpy(t3.speaker)[None],
            "cond_prompt_speech_tokens": torch.from_numpy(t3.tokens)[None],
            "emotion_adv": torch.full((1, 1, 1), 0.5),
            "clap_emb": None,
        },
        "gen": {
            "prompt_token": torch.from_numpy(gen.tokens)[None],
            "prompt_token_len": torch.tensor([n_flow]),
            "prompt_feat": torch.from_numpy(gen.mel)[None],
            "prompt_feat_len": None,
            "embedding": torch.from_numpy(gen.xvector)[None],
        },
    }


def _write(file: Path, state: dict[str, Any], configs: dict[str, Any]) -> None:
    if file.suffix == ".pt":
        torch.save(state, file)
        return
    if any(isinstance(part, dict) for part in state.values()):  # named flat
        state = {
            f"{part}.{name}": tensor
            for part, tensors in state.items()
            for name, tensor in tensors.items()
            if isinstance(tensor, Tensor)
        }
    configurations = {part: dataclasses.asdict(config) for part, config in configs.items()}
    tensors: dict[str, Tensor] = {name: t.contiguous().clone() for name, t in state.items()}
    save_file(tensors, file, {"nightingale": json.dumps({"config": configurations})})
