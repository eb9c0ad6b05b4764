"""Time per stage, ours and upstream's, in one process on the same full-size random weights.

Run it inside the upstream environment, which can import both:

    PYTHONPATH=src .venv-upstream/bin/python benchmarks/against_upstream.py --plan balanced

Ours follows the plan (fp32 unless asked otherwise), upstream computes in fp32 as it does. Rounds
alternate, so that a noisy machine disturbs both alike; what counts is the ratio. Upstream's
analyzer is off, as in its HEAD. The last line is JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parents[1]))
from nightingale.backends.torch.flow import model as flow
from nightingale.backends.torch.load import accelerate_flow, accelerate_vocoder, pack
from nightingale.backends.torch.resolve import resolve
from nightingale.backends.torch.t3 import model as t3
from nightingale.backends.torch.vocoder.model import Vocoder, VocoderConfig, fold_weight_norm
from nightingale.core import PLANS, Options, Plan
from nightingale.nn.device import choose
from tests.backends.torch.flow.tiny import tiny_prompt, tiny_tokens
from tests.backends.torch.vocoder.small import small_mel
from tests.parity import upstream_flow, upstream_t3, upstream_vocoder
from tests.tiny import tiny_text, tiny_voice

N_TOKENS, N_PROMPT = 125, 250  # five seconds of speech in a voice of ten
Pair = tuple[Callable[[], None], Callable[[], None]]


def t3_pair(n_steps: int, plan: Plan) -> Pair:
    """The prompt and `n_steps` tokens of Multilingual: a batch of two through 30 layers each."""
    config = t3.CONFIGS["multilingual"]
    theirs = upstream_t3.build(asdict(config))
    upstream_t3.randomize(theirs, 7)
    dead = tuple(name.rstrip("*") for name in t3.DEAD_TENSORS)
    ours = t3.T3(config).eval().requires_grad_(False)
    state = {k: v for k, v in theirs.state_dict().items() if not k.startswith(dead)}
    ours.load_state_dict(state, assign=True)
    if plan.t3 != "fp32":
        ours = pack(ours, plan)
    text, voice = tiny_text(n_tokens=60), tiny_voice()
    arrays = {name: torch.from_numpy(getattr(voice, name)) for name in ("speaker", "tokens")}
    options = replace(Options(), max_tokens=n_steps)
    prefix = ours.prefix(voice, options.exaggeration)

    def our_run() -> None:
        for _ in ours.decode(text, prefix, options):
            pass

    def their_run() -> None:
        case = {"text": text, "seed": 0, "n_tokens": n_steps, "options": asdict(options)}
        upstream_t3.speak(theirs, case, arrays)

    return our_run, their_run


@torch.inference_mode()
def flow_pair(decoder: flow.Decoder, plan: Plan) -> Pair:
    """Five seconds of mel behind ten seconds of prompt: 750 frames."""
    config = flow.CONFIGS[decoder]
    theirs = upstream_flow.build(asdict(config))
    upstream_flow.randomize(theirs, seed=7)
    ours = flow.Flow(config).eval().requires_grad_(False)
    state = {k: v for k, v in theirs.state_dict().items() if not k.endswith("linear_k.bias")}
    ours.load_state_dict(state, assign=True)
    ours = accelerate_flow(ours, choose("cpu"), plan)
    prompt, tokens = tiny_prompt(n_tokens=N_PROMPT), tiny_tokens(n_tokens=N_TOKENS)
    flow_state = ours.prefill(prompt) if plan.prompt_cache else None
    case = {
        "tokens": tokens,
        "prompt_tokens": torch.from_numpy(prompt.tokens),
        "prompt_mel": torch.from_numpy(prompt.mel),
        "xvector": torch.from_numpy(prompt.xvector),
        "noise": flow.frame_noise(0, len(prompt.mel), 2 * N_TOKENS, 80),
    }

    def our_run() -> None:
        if flow_state is None:
            ours.render(tokens, prompt, 0)
        else:
            ours.render_chunk(tokens, prompt, flow_state, 0)

    def their_run() -> None:
        with torch.inference_mode():
            upstream_flow.render(theirs, case)

    return our_run, their_run


def vocoder_pair(plan: Plan) -> Pair:
    """Five seconds of samples."""
    config = VocoderConfig()
    theirs = upstream_vocoder.build(asdict(config), torch.float32)
    upstream_vocoder.randomize(theirs, 1)
    ours = Vocoder(config).eval().requires_grad_(False)
    ours.load_state_dict(fold_weight_norm(theirs.state_dict()))
    ours = accelerate_vocoder(ours, choose("cpu"), plan)
    mel = small_mel(n_frames=2 * N_TOKENS)

    def our_run() -> None:
        ours.vocode(mel, 0)

    def their_run() -> None:
        with torch.inference_mode():
            theirs.inference(mel[None])

    return our_run, their_run


def timed(run: Callable[[], None]) -> float:
    started = time.perf_counter()
    with contextlib.redirect_stderr(io.StringIO()):
        run()
    return 1e3 * (time.perf_counter() - started)


def main() -> None:
    stages: dict[str, Callable[[Plan], Pair]] = {
        "t3_51_tokens": lambda plan: t3_pair(51, plan),
        "t3_1_token": lambda plan: t3_pair(1, plan),
        "flow_standard": lambda plan: flow_pair("standard", plan),
        "flow_meanflow": lambda plan: flow_pair("meanflow", plan),
        "vocoder": vocoder_pair,
    }
    arguments = argparse.ArgumentParser()
    arguments.add_argument("--stage", action="append", choices=list(stages))
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument("--plan", choices=list(PLANS), default="reference")
    chosen = arguments.parse_args()
    result: dict[str, object] = {"torch": torch.__version__, "threads": torch.get_num_threads()}
    plan = resolve(PLANS[chosen.plan], choose("cpu")).plan
    result["plan"] = str(plan)
    for name in chosen.stage or stages:
        our_run, their_run = stages[name](plan)
        timed(our_run), timed(their_run)
        rounds = [(timed(our_run), timed(their_run)) for _ in range(chosen.rounds)]
        ours, theirs = (statistics.median(column) for column in zip(*rounds, strict=True))
        ratio = statistics.median(upstream / own for own, upstream in rounds)
        result[name] = {
            "ours_ms": round(ours),
            "upstream_ms": round(theirs),
            "ratio": round(ratio, 2),
        }
        shown = f"{name:15} ours {ours:8.0f} ms   upstream {theirs:8.0f} ms   ratio {ratio:.2f}"
        print(shown, flush=True)
    print(json.dumps(result))


if __name__ == "__main__":
    main()
