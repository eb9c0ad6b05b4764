"""Flow and vocoder with products in 8 bits against fp32: how fast, and how near.

    python benchmarks/int8_stages.py [--models multilingual nano fledgling] [--rounds 5]

Models as large as the released ones have random weights (Multilingual ten steps, Nano mean-flow);
Fledgling has its own. Speech of 5 s in a voice of 10 s (Fledgling: its own voice), whole and in
windows as the plan `live` has them; fp32 and 8 bits take turns, medians count. The voice's
recording is rendered beforehand for windows. Times are those of the clock, and of the processors
where the machine has other work as well. `mel_rms` is the root mean square of
what differs in the log-mel frames, whole, beside that of another seed; `sample_rms` that of the
samples made of the same mel. Prints a line of JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import nightingale
from nightingale.backends.base import LOOKAHEAD_TOKENS
from nightingale.backends.torch.flow.model import CONFIGS, Decoder, Flow
from nightingale.backends.torch.load import accelerate_flow, accelerate_vocoder
from nightingale.backends.torch.vocoder.model import Vocoder, VocoderConfig
from nightingale.backends.torch.vocoder.streaming import VocoderState, vocode_next
from nightingale.core import CPU, TOKENS_PER_SECOND, WINDOW_SIZES, FlowPrompt, Plan
from nightingale.measure.random_model import VOICE_SECONDS, fill, random_voice
from nightingale.nn import native
from nightingale.nn.device import choose
from nightingale.nn.meta_init import meta_init

FLEDGLING = Path(nightingale.__file__).parent / "fledgling"
DECODERS: dict[str, Decoder] = {"multilingual": "standard", "nano": "meanflow"}
SECONDS, SEED = 5, 1
CLOCKS: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}
INT8 = Plan("int8", flow="int8", vocoder="int8")


@dataclass(frozen=True, slots=True, eq=False)
class Stages:
    flow: Flow
    vocoder: Vocoder
    prompt: FlowPrompt
    tokens: Tensor


def random_stages(decoder: Decoder, plan: Plan) -> Stages:
    with meta_init():
        flow, vocoder = Flow(CONFIGS[decoder]), Vocoder(VocoderConfig())
    fill(flow, 0)
    fill(vocoder, 1)
    for module in (flow, vocoder):
        module.eval().requires_grad_(False)
    placement = choose(CPU)
    flow = accelerate_flow(flow, placement, plan)
    vocoder = accelerate_vocoder(vocoder, placement, plan)
    prompt = random_voice(0, VOICE_SECONDS).flow
    return Stages(flow, vocoder, prompt, torch.arange(SECONDS * TOKENS_PER_SECOND) * 37 % 6000)


def fledgling_stages(plan: Plan) -> Stages:
    """The tokens are those of the voice's own recording: they sound like speech."""
    tts = nightingale.Nightingale.load(FLEDGLING, device=CPU, plan=plan)
    decoder: Any = tts.components.loaded.wave_decoder
    prompt = tts.components.voice.flow
    n = min(len(prompt.tokens), SECONDS * TOKENS_PER_SECOND)
    return Stages(decoder.flow, decoder.vocoder, prompt, torch.tensor(prompt.tokens[:n]))


def stages_of(model: str, plan: Plan) -> Stages:
    return fledgling_stages(plan) if model == "fledgling" else random_stages(DECODERS[model], plan)


def whole_mel(stages: Stages, seed: int = SEED) -> Tensor:
    return stages.flow.render(stages.tokens, stages.prompt, seed)


def windows(stages: Stages) -> Callable[[], list[Tensor]]:
    """All windows of the tokens; the voice's recording was rendered before."""
    begun, tokens = stages.flow.prefill(stages.prompt), stages.tokens

    def render() -> list[Tensor]:
        state, at, made = begun, 0, list[Tensor]()
        while at < len(tokens):
            size = WINDOW_SIZES[min(len(made), len(WINDOW_SIZES) - 1)]
            is_last = at + size + LOOKAHEAD_TOKENS >= len(tokens)
            here = tokens[at:] if is_last else tokens[at : at + size + LOOKAHEAD_TOKENS]
            n_ahead = 0 if is_last else LOOKAHEAD_TOKENS
            mel, state = stages.flow.render_chunk(here, stages.prompt, state, SEED, n_ahead=n_ahead)
            made.append(mel)
            at += len(here) - n_ahead
        return made

    return render


def vocode_windows(vocoder: Vocoder, mels: list[Tensor]) -> Tensor:
    state, made = VocoderState.start(vocoder, SEED), list[Tensor]()
    for number, mel in enumerate(mels):
        is_last = number == len(mels) - 1
        samples, state = vocode_next(vocoder, mel, state, SEED, is_last=is_last, n_lookahead=10)
        made.append(samples)
    return torch.cat(made)


def in_turns(works: Sequence[Callable[[], Any]], n_rounds: int) -> list[dict[str, float]]:
    """Medians of each clock, in milliseconds."""
    taken: list[list[dict[str, float]]] = [[] for _ in works]
    for _ in range(n_rounds + 1):
        for work, times in zip(works, taken, strict=True):
            begun = {clock: now() for clock, now in CLOCKS.items()}
            work()
            times.append({clock: 1e3 * (now() - begun[clock]) for clock, now in CLOCKS.items()})
    return [
        {clock: statistics.median(time[clock] for time in times[1:]) for clock in CLOCKS}  # warm
        for times in taken
    ]


def rms(x: Tensor) -> float:
    return round(float(x.double().square().mean().sqrt()), 5)


def measure(model: str, n_rounds: int) -> dict[str, Any]:
    exact, near = (stages_of(model, plan) for plan in (Plan(), INT8))
    exact_windows, near_windows = windows(exact), windows(near)
    mel, mels = whole_mel(exact), exact_windows()
    works: dict[str, tuple[Callable[[], Any], Callable[[], Any]]] = {
        "flow_whole": (lambda: whole_mel(exact), lambda: whole_mel(near)),
        "flow_windows": (exact_windows, near_windows),
        "vocoder_whole": (
            lambda: exact.vocoder.vocode(mel, SEED),
            lambda: near.vocoder.vocode(mel, SEED),
        ),
        "vocoder_windows": (
            lambda: vocode_windows(exact.vocoder, mels),
            lambda: vocode_windows(near.vocoder, mels),
        ),
    }
    facts: dict[str, Any] = {"model": model, "seconds": mel.shape[1] / 50}
    for name, pair in works.items():
        fp32, int8 = in_turns(pair, n_rounds)
        facts[name] = {
            clock: {
                "fp32_ms": round(fp32[clock]),
                "int8_ms": round(int8[clock]),
                "ratio": round(fp32[clock] / int8[clock], 2),
            }
            for clock in CLOCKS
        }
    samples = exact.vocoder.vocode(mel, SEED)
    facts["mel_rms"] = rms(whole_mel(near) - mel)
    facts["mel_rms_of_another_seed"] = rms(whole_mel(exact, SEED + 1) - mel)
    facts["sample_rms"] = rms(near.vocoder.vocode(mel, SEED) - samples)
    facts["samples_themselves"] = rms(samples)
    return facts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    names = [*DECODERS, "fledgling"]
    parser.add_argument("--models", nargs="+", choices=names, default=names)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    library = native.int8()
    if library is None:
        raise SystemExit("no kernels in 8 bits run here")
    results = [measure(model, given.rounds) for model in given.models]
    head = {"proof": "int8_stages", "threads": given.threads}
    head |= {"kernel": Path(library._name).stem}
    print(json.dumps({**head, "rounds": given.rounds, "results": results}))


if __name__ == "__main__":
    main()
