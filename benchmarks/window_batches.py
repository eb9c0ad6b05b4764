"""Windows of several requests in one pass of the flow: the same bytes as alone, and how fast.

    python benchmarks/window_batches.py identity --runs 500
    python benchmarks/window_batches.py identity --runs 8 --plant       must fail
    python benchmarks/window_batches.py speed
    python benchmarks/window_batches.py scheduler

`identity` lets the bundled model decode utterances of random tokens, voices and seeds, each alone
and then in drawn company, window after window, and compares the samples. `speed` renders windows of
a flow as large as the released ones, with random weights and a voice of 10 s, one by one and
together, in turns: processor time, medians. `scheduler` lets the bundled model say eight texts at
once, with and without shared windows, in turns: seconds of speech by seconds of the processor,
medians. Each prints a line of JSON.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

import nightingale
from nightingale.backends.base import LOOKAHEAD_TOKENS, TokenWindow, WaveDecoder, WindowJob
from nightingale.backends.torch.flow import window
from nightingale.backends.torch.flow.model import CONFIGS, Flow, FlowChunk
from nightingale.core import N_SPEECH_CODES, SAMPLES_PER_SECOND, WINDOW_SIZES, FlowPrompt, Plan
from nightingale.measure.random_model import VOICE_SECONDS, fill, random_voice
from nightingale.nn.meta_init import meta_init
from nightingale.scheduler import Scheduler
from nightingale.windowing import token_windows

MODEL = Path(nightingale.__file__).parent / "fledgling"
MAX_COMPANY = 4
TEXT = "It is late, and nobody minds that the lights are still on in the kitchen."


@dataclass(eq=False)
class Utterance:
    """Tokens, a voice and a seed that nobody else has; and how far each way of decoding is."""

    number: int
    voice: FlowPrompt
    windows: list[TokenWindow]
    wanted: list[np.ndarray[Any, Any]] = field(default_factory=list)
    at: int = 0
    state: Any = None

    @classmethod
    def drawn(cls, number: int, voice: FlowPrompt) -> Utterance:
        """A voice of another length each, cut from one recording."""
        rng = random.Random(number)
        n_voice = rng.randint(len(voice.tokens) // 2, len(voice.tokens))
        own = FlowPrompt(voice.tokens[:n_voice], voice.mel[: 2 * n_voice], voice.xvector)
        tokens = rng.choices(range(N_SPEECH_CODES), k=rng.randint(20, 70))
        return cls(number, own, list(filter(None, token_windows(tokens, WINDOW_SIZES))))


def decode_alone(decoder: WaveDecoder, utterance: Utterance) -> None:
    state = decoder.start(utterance.voice, utterance.number)
    for part in utterance.windows:
        (decoded,) = decoder.decode([WindowJob(part, state)])
        state = decoded.state
        utterance.wanted.append(decoded.samples)


def decode_together(
    decoder: WaveDecoder, utterances: list[Utterance], rng: random.Random
) -> Iterator[tuple[int, bool]]:
    """How many were in a pass, and whether each of them sounded as alone."""
    live = list(utterances)
    for it in live:
        it.state = decoder.start(it.voice, it.number)
    while live:
        first = rng.choice(live)
        size = len(first.windows[first.at].tokens)
        alike = [it for it in live if len(it.windows[it.at].tokens) == size and it is not first]
        group = [first, *rng.sample(alike, min(len(alike), rng.randint(0, MAX_COMPANY - 1)))]
        rng.shuffle(group)
        decoded = decoder.decode([WindowJob(it.windows[it.at], it.state) for it in group])
        for it, one in zip(group, decoded, strict=True):
            yield len(group), np.array_equal(one.samples, it.wanted[it.at])
            it.state, it.at = one.state, it.at + 1
        live = [it for it in live if it.at < len(it.windows)]


def plant_leak() -> None:
    """A request that hears the queries of its neighbour, a little."""
    attend = window.JointWindow.attend

    def leaky(self: Any, attention: Any, queries: Any, keys: Any, values: Any) -> Any:
        return attend(self, attention, queries + 1e-3 * queries.roll(1, 0), keys, values)

    window.JointWindow.attend = leaky  # type: ignore[method-assign]


def identity(given: argparse.Namespace) -> dict[str, Any]:
    plan = replace(Plan.named("live"), t3="fp32")
    tts = nightingale.Nightingale.load(MODEL, device="cpu", plan=plan, decoder=given.decoder)
    decoder, voice = tts.components.loaded.wave_decoder, tts.components.voice.flow
    rng, sizes, wrong = random.Random(given.seed), list[int](), 0
    if given.plant:
        plant_leak()
    for first in range(given.seed, given.seed + given.runs, 8):
        numbers = range(first, min(first + 8, given.seed + given.runs))
        utterances = [Utterance.drawn(number, voice) for number in numbers]
        for utterance in utterances:
            decode_alone(decoder, utterance)
        for size, is_equal in decode_together(decoder, utterances, rng):
            sizes.append(size)
            wrong += not is_equal
    shared = sum(size > 1 for size in sizes)
    facts = {"runs": given.runs, "windows": len(sizes), "windows_in_company": shared}
    return {"proof": "identity", "decoder": given.decoder, **facts, "wrong": wrong}


def speed(given: argparse.Namespace) -> dict[str, Any]:
    torch.set_num_threads(given.threads)
    rows = []
    for decoder in given.decoders:
        with meta_init():
            flow = Flow(CONFIGS[decoder])
        fill(flow, 0)
        flow.eval().requires_grad_(False)
        voice = random_voice(0, VOICE_SECONDS).flow
        state = flow.prefill(voice)
        for size in (WINDOW_SIZES[0], WINDOW_SIZES[-1]):
            tokens = torch.arange(size + LOOKAHEAD_TOKENS)
            chunks = [FlowChunk(tokens, voice, state, seed) for seed in range(max(given.together))]
            rows += [
                {
                    "decoder": decoder,
                    "tokens": size,
                    "together": n,
                    **timed(flow, chunks[:n], given.rounds),
                }
                for n in given.together
            ]
            print(rows[-len(given.together) :], file=sys.stderr, flush=True)
    return {"proof": "speed", "threads": given.threads, "rows": rows}


def timed(flow: Flow, chunks: list[FlowChunk], n_rounds: int) -> dict[str, float]:
    alone, together = list[float](), list[float]()
    for _ in range(n_rounds + 1):
        begun = time.process_time()
        for chunk in chunks:
            flow.render_chunks([chunk], n_ahead=LOOKAHEAD_TOKENS)
        between = time.process_time()
        flow.render_chunks(chunks, n_ahead=LOOKAHEAD_TOKENS)
        alone.append(between - begun)
        together.append(time.process_time() - between)
    one, many = (1e3 * statistics.median(times[1:]) for times in (alone, together))  # warm
    return {
        "one_by_one_ms": round(one, 1),
        "together_ms": round(many, 1),
        "ratio": round(one / many, 2),
    }


def speech_per_cpu_s(tts: nightingale.Nightingale, n_requests: int, *, shared: bool) -> float:
    decode = tts.decode_windows if shared else None
    scheduler, n_samples = Scheduler(n_requests, tts.step_tokens, decode), list[int]()
    begun = time.process_time()
    for seed in range(n_requests):
        speech = tts.stream(TEXT, seed=seed)
        scheduler.admit(speech, lambda chunk: n_samples.append(len(chunk.samples)), lambda _: None)
    scheduler.close()
    return sum(n_samples) / SAMPLES_PER_SECOND / (time.process_time() - begun)


def schedule(given: argparse.Namespace) -> dict[str, Any]:
    torch.set_num_threads(1)
    tts = nightingale.Nightingale.load(MODEL, device="cpu", plan="live", decoder=given.decoder)
    speech_per_cpu_s(tts, 2, shared=True)
    found: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(given.rounds):
        for shared, rates in found.items():
            rates.append(speech_per_cpu_s(tts, given.requests, shared=shared))
            print(shared, round(rates[-1], 3), file=sys.stderr, flush=True)
    apart, together = (round(statistics.median(found[shared]), 3) for shared in (False, True))
    facts = {"decoder": given.decoder, "requests": given.requests, "rounds": given.rounds}
    rates = {"apart": apart, "together": together, "ratio": round(together / apart, 2)}
    return {"proof": "scheduler", **facts, **rates}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    kinds = parser.add_subparsers(dest="kind", required=True)
    same = kinds.add_parser("identity")
    same.add_argument("--runs", type=int, default=500)
    same.add_argument("--decoder", choices=CONFIGS, default="meanflow")
    same.add_argument("--seed", type=int, default=0)
    same.add_argument("--plant", action="store_true", help="a leak between requests")
    fast = kinds.add_parser("speed")
    fast.add_argument("--decoders", nargs="+", choices=CONFIGS, default=list(CONFIGS))
    fast.add_argument("--together", nargs="+", type=int, default=[2, 4, 8])
    fast.add_argument("--rounds", type=int, default=5)
    fast.add_argument("--threads", type=int, default=1)
    many = kinds.add_parser("scheduler")
    many.add_argument("--decoder", choices=CONFIGS, default="meanflow")
    many.add_argument("--requests", type=int, default=8)
    many.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    facts = {"identity": identity, "speed": speed, "scheduler": schedule}[given.kind](given)
    print(json.dumps(facts))
    sys.exit(bool(facts.get("wrong")))


if __name__ == "__main__":
    main()
