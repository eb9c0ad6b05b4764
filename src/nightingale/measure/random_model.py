"""A model as large as a released one, with random weights: as fast or slow, and speaks noise.

Speed does not depend on what the numbers are, so a machine can be measured before a download.
"""

from __future__ import annotations

from collections.abc import Collection

import torch
from torch import Tensor, nn

from nightingale.audio.watermark import Watermarker
from nightingale.backends.base import LoadedModel
from nightingale.backends.mlx.backend import BACKEND as MLX
from nightingale.backends.torch.backend import assemble
from nightingale.backends.torch.flow import model as flow
from nightingale.backends.torch.load import place, place_t3
from nightingale.backends.torch.resolve import resolve
from nightingale.backends.torch.t3 import model as t3
from nightingale.backends.torch.t3.conditioning import SPEAKER_DIM
from nightingale.backends.torch.vocoder.model import Vocoder, VocoderConfig
from nightingale.core import (
    FRAMES_PER_TOKEN,
    N_SPEECH_CODES,
    TOKENS_PER_SECOND,
    FlowPrompt,
    T3Prompt,
    Voice,
)
from nightingale.families import FAMILIES, FamilySpec
from nightingale.loader import LOAD_DEFAULTS, Components, LoadOptions, pick_decoder
from nightingale.nn.device import choose
from nightingale.nn.meta_init import meta_init
from nightingale.text.readable import Readable
from nightingale.weights import catalog

VOICE_SECONDS = 10.0
N_MEL, D_XVECTOR = 80, 192
GPT2_LETTERS = 4  # of English in one of GPT-2's tokens, about
CONTROL_SCALE = 1e-3  # weights of the control tokens: they are rarely drawn, as in a trained model


class LetterTokenizer:
    """A token for every few letters; which one does not matter."""

    space: int | None = None
    languages: Collection[str] = ("en",)
    typed_tokens: Collection[str] = ()

    def __init__(self, n_text: int, n_letters: int = 1) -> None:
        self._n_text = n_text
        self._n_letters = n_letters

    def encode(self, text: str, language: str | None = None) -> list[int]:  # noqa: ARG002
        return [ord(letter) % self._n_text for letter in text[:: self._n_letters]]

    def readable(self, text: str, language: str | None = None) -> Readable:  # noqa: ARG002
        return Readable(text, [])


def random_components(name: str, wanted: LoadOptions = LOAD_DEFAULTS) -> Components:
    """Everything that speaking needs, as large as life, without a file."""
    model = catalog.find(name)
    chosen = pick_decoder(wanted.decoder, model)
    config = t3.CONFIGS[model.family]
    if wanted.threads:
        torch.set_num_threads(wanted.threads)
    with meta_init():
        modules = t3.T3(config), flow.Flow(flow.CONFIGS[chosen]), Vocoder(VocoderConfig())
    for seed, module in enumerate(modules):
        fill(module, seed)
        module.eval().requires_grad_(False)
    modules[0].speech_head.weight[N_SPEECH_CODES:] *= CONTROL_SCALE
    loaded = _assembled(modules, FAMILIES[model.family], wanted)
    assert loaded.resolved is not None
    return Components(
        model=model,
        files={},
        decoder=chosen,
        resolved=loaded.resolved,
        tokenizer=LetterTokenizer(config.n_text, 1 if config.is_llama else GPT2_LETTERS),
        backend=wanted.backend if wanted.backend == MLX.name else "torch",
        loaded=loaded,
        voice=random_voice(config.max_prompt, VOICE_SECONDS),
        watermarker=Watermarker(),
    )


def _assembled(
    modules: tuple[t3.T3, flow.Flow, Vocoder], spec: FamilySpec, wanted: LoadOptions
) -> LoadedModel:
    if wanted.backend == MLX.name:
        return MLX.assemble(modules, spec, wanted.plan, wanted.device)
    placement = choose(wanted.device)
    resolved = resolve(wanted.plan, placement)
    model_t3, model_flow, vocoder = modules
    return assemble(
        place_t3(model_t3, resolved.plan, placement),  # packed on the host, before it goes anywhere
        place(model_flow, placement),
        place(vocoder, placement),
        spec,
        resolved,
        placement,
    )


def random_voice(n_prompt: int, seconds: float) -> Voice:
    """Somebody whose recording has that length."""
    n_tokens = round(seconds * TOKENS_PER_SECOND)
    rng = torch.Generator().manual_seed(0)
    tokens = torch.randint(N_SPEECH_CODES, (max(n_prompt, n_tokens),), generator=rng)
    mel = torch.randn(FRAMES_PER_TOKEN * n_tokens, N_MEL, generator=rng) - 5
    speaker = torch.rand(SPEAKER_DIM, generator=rng)
    xvector = torch.randn(D_XVECTOR, generator=rng)
    return Voice(
        t3=T3Prompt(speaker.numpy(), tokens[:n_prompt].numpy()),
        flow=FlowPrompt(*(t.numpy() for t in (tokens[:n_tokens], mel, xvector))),
    )


@torch.no_grad()
def fill(module: nn.Module, seed: int) -> None:
    """Give a module without memory weights that neither die out nor blow up."""
    rng = torch.Generator().manual_seed(seed)

    def drawn(name: str, tensor: Tensor) -> Tensor:
        if not tensor.is_meta:
            return tensor  # a table that the module computed itself
        if "norm" in name and name.endswith("weight"):
            return torch.ones(tensor.shape)
        fan_in = max(1, tensor[0].numel()) if tensor.dim() > 1 else 100
        return torch.empty(tensor.shape).uniform_(-1, 1, generator=rng) * (3 / fan_in) ** 0.5

    state = {name: drawn(name, tensor) for name, tensor in module.state_dict().items()}
    module.load_state_dict(state, assign=True)
