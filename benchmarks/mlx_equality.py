"""How far the backend mlx is from the torch backend: tokens, logits, mel and samples.

    python -m benchmarks.mlx_equality --utterances 50 > result.json
    python -m benchmarks.mlx_equality --utterances 50 --t3 int8 --decoders
    python -m benchmarks.mlx_equality --utterances 2 --fault rotation

Each sentence is said by both with its own seed; logits are compared with the torch backend's tokens
forced, so that one other token does not hide what follows. Mel is made of the same tokens by both,
and samples of the same mel; `sound` is what each makes of its own mel. All whole and in windows.
Exits with 1 if a bound is broken. On Linux, MLX's BLAS is the
reference one; `fast_blas` lends it torch's.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import sys
import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from importlib import metadata
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import torch
from torch import Tensor

from nightingale import Nightingale
from nightingale.backends.base import TokenEvent, TokenRequest, WindowJob
from nightingale.backends.torch.t3.guard import Guard
from nightingale.backends.torch.vocoder.streaming import VocoderState, vocode_next
from nightingale.core import FRAMES_PER_TOKEN, N_SPEECH_CODES, Options, Plan
from nightingale.loader import Components
from nightingale.measure import texts
from nightingale.measure.stages import torch_stages
from nightingale.windowing import token_windows

MAX_LOGIT, MAX_MEL, MAX_SAMPLE = 1e-4, 1e-4, 1e-3
MAX_SOUND = 2e-3  # samples by each of its own mel: torch's vocoder makes 1.1e-3 of 1e-5 in the mel
WHOLE = Plan()
WINDOWED = Plan("windowed", prompt_cache=True, window_sizes=(8, 12, 14, 17, 21, 25))
FAULTS = {  # what must be found
    "rotation": "nightingale.backends.mlx.transformer.rotate",
    "alignment": "nightingale.backends.mlx.flow.align_distances",
}


# Of logits with fewer bits, on Fledgling: root mean square of the error, relative to their own.
MAX_QUANTIZED = {"bf16": 0.02, "int8": 0.012, "int4": 0.12}


@dataclass(slots=True)
class Differences:
    """The largest ones so far, and how large the numbers themselves are."""

    n_utterances: int = 0
    n_tokens: int = 0
    n_same_tokens: int = 0  # with the torch backend's forced
    n_same_utterances: int = 0  # token by token, and text positions too, each by itself
    logits: float = 0.0
    logits_rms: float = 0.0  # of the worst utterance, relative to the logits' own
    mel: dict[str, float] = field(default_factory=dict)
    samples: dict[str, float] = field(default_factory=dict)
    sound: dict[str, float] = field(default_factory=dict)
    scales: dict[str, float] = field(default_factory=dict)

    def faults(self, slack: float = 1.0, t3: str = "fp32") -> list[str]:
        """Bounds that are broken, each taken so many times as wide."""
        if t3 in MAX_QUANTIZED:
            most = MAX_QUANTIZED[t3]
            return [] if self.logits_rms <= most else [f"logits differ by {self.logits_rms:.1%}"]
        found = []
        if self.n_same_utterances < self.n_utterances:
            found.append(f"{self.n_utterances - self.n_same_utterances} utterances differ")
        for name, made, most in (
            ("logits", [self.logits], MAX_LOGIT),
            ("mel", self.mel.values(), MAX_MEL),
            ("samples", self.samples.values(), MAX_SAMPLE),
            ("sound", self.sound.values(), MAX_SOUND),
        ):
            if not all(one <= slack * most for one in made):  # NaN fails this too
                found.append(f"{name} differ by {max(made):.1e}, more than {slack * most:.0e}")
        return found


def fast_blas() -> None:
    """Products of MLX on Linux by torch's BLAS, ten times faster. Before MLX is imported, and never
    beside faster-whisper: it takes the same symbols, and then hears nonsense."""
    library = Path(torch.__file__).parent / "lib/libtorch_cpu.so"
    if library.is_file():
        ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL)


def loaded(model: str | Path, backend: str, plan: Plan, decoder: str | None = None) -> Components:
    tts = Nightingale.load(model, backend=backend, plan=plan, decoder=decoder, watermark=False)
    return tts.components


def said(model: Components, ids: Sequence[int], options: Options) -> list[tuple[int, int | None]]:
    """Tokens and text positions of an utterance by itself."""
    engine, found = model.loaded.token_engine, list[TokenEvent]()
    number = engine.add(TokenRequest(ids, model.voice.t3, options))
    while not found or not found[-1].is_last:
        found += engine.step((number,))
        if found[-1].error is not None:
            raise found[-1].error
    return [(event.token, event.position) for event in found]


@torch.inference_mode()
def forced_logits(
    model: Components, ids: Sequence[int], options: Options, tokens: Sequence[int]
) -> Tensor:
    """(tokens, V): what each is drawn from, when those before it are these."""
    t3 = torch_stages(model).t3
    heads = t3.config.alignment_heads
    guard = Guard(heads, len(ids)) if heads else None
    prefix = t3.prefix(model.voice.t3, options.exaggeration)
    utterance, _ = t3.begin(ids, prefix, options, guard=guard)
    rows = [utterance.first()]
    rows += [utterance.next(torch.tensor(token), at) for at, token in enumerate(tokens[:-1])]
    return torch.stack(rows)


@torch.inference_mode()
def vocoded(model: Components, mel: np.ndarray, codes: Sequence[int], seed: int) -> np.ndarray:
    """Samples of a mel, (80, M): at once, or in the pieces of the plan's windows."""
    vocoder, frames, plan = torch_stages(model).vocoder, torch.from_numpy(mel), model.plan
    if not plan.window_sizes:
        return vocoder.vocode(frames, seed).numpy()
    state, parts, at = VocoderState.start(vocoder, seed), [], 0
    for window in filter(None, token_windows(list(codes), plan.window_sizes)):
        end = at + FRAMES_PER_TOKEN * (len(window.tokens) - window.n_ahead)
        samples, state = vocode_next(
            vocoder,
            frames[:, at:end],
            state,
            seed,
            is_last=window.is_last,
            n_lookahead=plan.vocoder_lookahead,
        )
        parts.append(samples.numpy())
        at = end
    return np.concatenate(parts)


def sound_of(model: Components, codes: Sequence[int], seed: int) -> np.ndarray:
    decoder = model.loaded.wave_decoder
    state, parts = decoder.start(model.voice.flow, seed), []
    for window in filter(None, token_windows(list(codes), model.plan.window_sizes)):
        (made,) = decoder.decode([WindowJob(window, state)])
        parts.append(made.samples)
        state = made.state
    return np.concatenate(parts)


def mel_of(model: Components, codes: Sequence[int], seed: int) -> np.ndarray:
    windows = token_windows(list(codes), model.plan.window_sizes)
    mel = torch_stages(model).decoder.render(windows, model.voice.flow, seed)
    return mel.numpy()


def compare_tokens(
    pair: Sequence[Components], text: str, seed: int, max_tokens: int, into: Differences
) -> list[int]:
    """The torch backend's tokens of a sentence, after both have said it."""
    torch_model, _ = pair
    options = replace(torch_model.spec.options, seed=seed, max_tokens=max_tokens)
    ids = torch_model.tokenizer.encode(text, "en")
    wanted, made = (said(model, ids, options) for model in pair)
    tokens = [token for token, _ in wanted]
    logits, mlx_logits = (forced_logits(model, ids, options, tokens) for model in pair)
    into.n_utterances += 1
    into.n_same_utterances += wanted == made
    into.n_tokens += len(tokens)
    both = zip(tokens, (token for token, _ in made), strict=False)
    into.n_same_tokens += sum(one == other for one, other in both)
    into.logits = max(into.logits, float((logits - mlx_logits).abs().max()))
    rms = float((logits - mlx_logits).square().mean().sqrt() / logits.std())
    into.logits_rms = max(into.logits_rms, rms)
    into.scales["logits"] = max(into.scales.get("logits", 0.0), float(logits.abs().max()))
    return tokens


def compare_sound(
    name: str, pair: Sequence[Components], tokens: Sequence[int], seed: int, into: Differences
) -> None:
    """Mel and samples that both make of the same tokens."""
    codes = [token for token in tokens if token < N_SPEECH_CODES]
    mel = mel_of(pair[0], codes, seed)
    for what, kept, (wanted, made) in (
        ("mel", into.mel, (mel, mel_of(pair[1], codes, seed))),
        ("samples", into.samples, [vocoded(model, mel, codes, seed) for model in pair]),
        ("sound", into.sound, [sound_of(model, codes, seed) for model in pair]),
    ):
        apart = float(np.abs(wanted - made).max()) if wanted.shape == made.shape else np.inf
        kept[name] = max(kept.get(name, 0.0), apart)
        into.scales[what] = max(into.scales.get(what, 0.0), float(np.abs(wanted).max()))


def compare(
    model: str | Path,
    sentences: Sequence[str],
    t3: Any = "fp32",
    decoders: Sequence[str] = (),
    max_tokens: int = 1000,
) -> Differences:
    found = Differences()
    plan = replace(WHOLE, t3=t3)
    pair = [loaded(model, "torch", WHOLE), loaded(model, "mlx", plan)]
    sounding = {
        f"{decoder}, {plan.name}": [loaded(model, it, plan, decoder) for it in ("torch", "mlx")]
        for decoder in decoders
        for plan in (WHOLE, WINDOWED)
    }
    for seed, text in enumerate(sentences):
        tokens = compare_tokens(pair, text, seed, max_tokens, found)
        for name, both in sounding.items():
            compare_sound(name, both, tokens, seed, found)
        print(f"{seed + 1} of {len(sentences)}: {found}", file=sys.stderr)
    return found


def broken(name: str) -> Any:
    """A fault planted into the backend mlx."""
    import mlx.core as mx  # noqa: PLC0415

    wrong = {
        "rotation": lambda x, cos, sin: x * cos + mx.roll(x, 1, -1) * sin,
        "alignment": lambda scores: scores[..., : scores.shape[-1] - scores.shape[-2]],
    }[name]
    return mock.patch(FAULTS[name], wrong)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", default="fledgling")
    parser.add_argument("--utterances", type=int, default=50)
    parser.add_argument("--t3", default="fp32", choices=("fp32", "bf16", "int8", "int4"))
    parser.add_argument("--decoders", nargs="*", default=["meanflow"])
    parser.add_argument("--fault", choices=FAULTS)
    given = parser.parse_args()
    fast_blas()
    sentences = texts.read("short", given.utterances)
    begun = time.perf_counter()
    with broken(given.fault) if given.fault else nullcontext():
        found = compare(given.model, sentences, given.t3, given.decoders)
    result = {
        "model": given.model,
        "t3": given.t3,
        **{name: getattr(found, name) for name in found.__dataclass_fields__},
        "faults": found.faults(t3=given.t3),
        "mlx": metadata.version("mlx"),
        "torch": torch.__version__,
        "seconds": round(time.perf_counter() - begun),
    }
    print(json.dumps(result))
    sys.exit(bool(result["faults"]))


if __name__ == "__main__":
    main()
