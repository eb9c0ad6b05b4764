"""Whether the backend vllm says what the torch backend says: tokens and text positions, in fp32.

    scripts/vllm python benchmarks/vllm_equality.py --utterances 500 > result.json
    scripts/vllm python benchmarks/vllm_equality.py --utterances 12 --fault swapped_branch

Texts, voices, seeds, options, forced tokens and arrival orders are drawn; the torch backend says
each alone. vLLM says them under several conditions: as served, without prefix caching, with prompts
read in chunks of at most 1, 37 and 64 positions, and with so few pages that requests are preempted.
Exits with 1 if anything differs, or if nobody was preempted where that is meant to happen.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import numpy as np
import torch

from nightingale import Nightingale
from nightingale.backends.base import TokenEngine, TokenRequest
from nightingale.backends.vllm.backend import prepare_process
from nightingale.backends.vllm.engine import VllmTokenEngine
from nightingale.backends.vllm.prompt import prompt_embeddings
from nightingale.backends.vllm.start import EngineLimits
from nightingale.core import N_SPEECH_CODES, T3Prompt
from nightingale.loader import Components

CACHE_BYTES = 2**28
CONDITIONS = {
    "as served": EngineLimits(CACHE_BYTES),
    "small pages": EngineLimits(CACHE_BYTES, block_size=32),
    "no prefix caching": EngineLimits(CACHE_BYTES, prefix_caching=False),
    "chunks of 1": EngineLimits(CACHE_BYTES, max_sequences=1, max_batched_tokens=1, block_size=32),
    "chunks of 37": EngineLimits(CACHE_BYTES, max_batched_tokens=37, block_size=32),
    "chunks of 64": EngineLimits(CACHE_BYTES, max_batched_tokens=64, block_size=32),
    "preemption": EngineLimits(CACHE_BYTES, block_size=32, n_blocks=14, max_positions=400),
}
N_LIVE = 16  # requests at once, at most
WORDS = (
    "the a late garden river nobody minds that lights are still on in kitchen seven small birds "
    "sing before morning while old clocks strike thirteen and she asks how far it is to town"
)
Said = list[tuple[int, int | None, bool, bool]]  # token, position, is it the last, was it all said


def draw_voices(own: T3Prompt, n: int, rng: np.random.Generator) -> list[T3Prompt]:
    """The model's own, and others: another speaker, other and fewer tokens of a recording."""
    voices = [own]
    while len(voices) < n:
        speaker = own.speaker + 0.3 * np.abs(own.speaker).mean() * rng.normal(size=256)
        n_tokens = int(rng.integers(20, len(own.tokens) + 1))
        tokens = np.where(
            rng.random(n_tokens) < 0.2,
            rng.integers(0, N_SPEECH_CODES, n_tokens),
            own.tokens[:n_tokens],
        )
        voices.append(T3Prompt(speaker.astype(np.float32), tokens.astype(np.int64)))
    return voices


def draw_request(
    model: Components, voices: Sequence[T3Prompt], rng: np.random.Generator
) -> TokenRequest:
    text = " ".join(rng.choice(WORDS.split(), int(rng.integers(1, 13)))).capitalize() + "."
    options = replace(
        model.spec.options,
        seed=int(rng.integers(0, 2**63 - 1)),
        cfg_weight=float(rng.choice([0, 0.3, 0.5, 0.5, 0.7, 1])),
        temperature=float(rng.choice([0, 0.5, 0.8, 0.8, 1])),
        exaggeration=float(rng.choice([0.25, 0.5, 0.5, 1])),
        repetition_penalty=float(rng.choice([1, 1.2, 1.2, 2])),
        min_p=float(rng.choice([0, 0.05, 0.05, 0.1])),
        top_p=float(rng.choice([0.8, 1, 1])),
        guard=bool(rng.random() < 0.8),
        max_tokens=int(rng.integers(20, 121)),
    )
    voice = voices[int(rng.integers(len(voices)))]
    return TokenRequest(model.tokenizer.encode(text, "en"), voice, options)


def say_alone(engine: TokenEngine, request: TokenRequest) -> Said:
    return say_together(engine, [request], np.random.default_rng(0))[0]


def say_together(
    engine: TokenEngine, requests: Sequence[TokenRequest], rng: np.random.Generator
) -> list[Said]:
    """Requests come in when there is room; each turn is for some of those that are there."""
    said: list[Said] = [[] for _ in requests]
    waiting = list(range(len(requests)))
    live: dict[int, int] = {}  # number -> index
    while waiting or live:
        while waiting and len(live) < N_LIVE and (not live or rng.random() < 0.3):
            at = waiting.pop(0)
            live[engine.add(requests[at])] = at
        batch = [number for number in live if rng.random() < 0.8] or list(live)
        rng.shuffle(batch)
        for event in engine.step(batch):
            if event.error is not None:
                raise event.error
            said[live[event.number]].append(
                (event.token, event.position, event.is_last, event.is_said)
            )
            if event.is_last:
                del live[event.number]
    return said


@dataclass(slots=True)
class Trial:
    """A request, and what the torch backend says."""

    request: TokenRequest
    wanted: Said


def draw_trials(model: Components, n: int, rng: np.random.Generator) -> list[Trial]:
    """Every fifth goes on from a log of tokens, as if its worker had been lost."""
    voices, trials = draw_voices(model.voice.t3, 6, rng), []
    for index in range(n):
        request = draw_request(model, voices, rng)
        wanted = say_alone(model.loaded.token_engine, request)
        if index % 5 == 4:
            n_forced = int(rng.integers(1, len(wanted) + 1))
            log = tuple(token for token, *_ in wanted[:n_forced])
            request = replace(request, forced=log)
        trials.append(Trial(request, wanted))
    return trials


@contextmanager
def counted(engine: VllmTokenEngine) -> Iterator[dict[str, int]]:
    """What the scheduler does meanwhile: preemptions, positions found in the prefix cache."""
    scheduler, found = engine._scheduler, {"preemptions": 0, "cached_positions": 0}
    preempt, hit = scheduler._preempt_request, scheduler._get_local_prefix_cache_hit

    def counted_preempt(*args: Any, **more: Any) -> None:
        found["preemptions"] += 1
        preempt(*args, **more)

    def counted_hit(request: Any) -> Any:
        blocks, n_positions, *rest = hit(request)
        found["cached_positions"] += n_positions
        return blocks, n_positions, *rest

    with (
        mock.patch.object(scheduler, "_preempt_request", counted_preempt),
        mock.patch.object(scheduler, "_get_local_prefix_cache_hit", counted_hit),
    ):
        yield found


def start(model: Components, limits: EngineLimits) -> VllmTokenEngine:
    prepare_process()
    t3 = model.loaded.token_engine.t3  # type: ignore[attr-defined]
    return VllmTokenEngine(t3, model.files["t3"], "float32", limits)


def compare(
    engine: VllmTokenEngine, trials: Sequence[Trial], rng: np.random.Generator
) -> dict[str, Any]:
    begun = time.perf_counter()
    with counted(engine) as counts:
        said = say_together(engine, [trial.request for trial in trials], rng)
    wrong = [at for at, trial in enumerate(trials) if said[at] != trial.wanted]
    first = [
        next(
            (
                n
                for n, (a, b) in enumerate(zip(said[at], trials[at].wanted, strict=False))
                if a != b
            ),
            min(len(said[at]), len(trials[at].wanted)),
        )
        for at in wrong
    ]
    return {
        "utterances": len(trials),
        "tokens": sum(len(trial.wanted) for trial in trials),
        "wrong": len(wrong),
        "first_wrong_token": first,
        **counts,
        "seconds": round(time.perf_counter() - begun, 1),
    }


def _swapped(*args: Any) -> tuple[torch.Tensor, int]:
    embeddings, n_voice = prompt_embeddings(*args)
    with_text, without = embeddings.chunk(2, dim=-1)
    return torch.cat((without, with_text), dim=-1), n_voice


def swapped_branch() -> AbstractContextManager[Any]:
    """The branch without text is taken for the other one."""
    return mock.patch("nightingale.backends.vllm.engine.prompt_embeddings", _swapped)


def shared_block() -> AbstractContextManager[Any]:
    """Pages of different prompts are taken for the same: vLLM hashes them without their content."""
    from vllm.v1.core import kv_cache_utils  # noqa: PLC0415

    name = "_gen_prompt_embeds_extra_hash_keys"
    return mock.patch.object(kv_cache_utils, name, lambda *_: [])


def shared_position() -> AbstractContextManager[Any]:
    """Generated tokens have no speech positions."""
    from nightingale.backends.vllm.batch import NOT_SPEECH, Batch  # noqa: PLC0415

    def nowhere(_: Batch, n_rows: int, device: torch.device) -> torch.Tensor:
        return torch.full((n_rows,), NOT_SPEECH, device=device)

    return mock.patch.object(Batch, "prompt_lengths", nowhere)


FAULTS = {one.__name__: one for one in (swapped_branch, shared_block, shared_position)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--utterances", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--condition", action="append", choices=CONDITIONS, help="default: all")
    parser.add_argument("--fault", choices=FAULTS, help="plant it: then this must fail")
    args = parser.parse_args()
    torch.set_num_threads(1)
    rng = np.random.default_rng(args.seed)
    model = Nightingale.load("fledgling", decoder="meanflow", watermark=False).components
    conditions = args.condition or list(CONDITIONS)
    trials = draw_trials(model, args.utterances, rng)
    rows, is_right = {}, True
    for at, name in enumerate(conditions):
        engine = start(model, CONDITIONS[name])
        own = trials[at :: len(conditions)]
        with ExitStack() as stack:
            if args.fault:
                stack.enter_context(FAULTS[args.fault]())
            rows[name] = compare(engine, own, rng)
        print(name, rows[name], file=sys.stderr, flush=True)
        is_right &= not rows[name]["wrong"]
        is_right &= bool(rows[name]["preemptions"]) or name != "preemption"
        del engine
        gc.collect()
    total = {key: sum(r[key] for r in rows.values()) for key in ("utterances", "tokens", "wrong")}
    print(json.dumps({**total, "fault": args.fault, "ok": is_right, "conditions": rows}))
    sys.exit(not is_right)


if __name__ == "__main__":
    main()
