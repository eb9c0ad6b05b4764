"""What exact speculative decoding of T3 would gain: acceptance of drafts, and the cost of a pass.

    python benchmarks/speculation.py accept --utterances 50      Fledgling
    python benchmarks/speculation.py identity --utterances 1000  speculative against plain decoding
    python benchmarks/speculation.py cost                        Multilingual, random weights
    python benchmarks/speculation.py report ACCEPT.json COST.json

Noise is a function of seed and index, so a draft that draws with the same noise proposes exactly
the token of plain decoding or another one: a proposal is accepted if they are equal, and what is
said does not change. A chain of proposals is followed only as far as they are accepted, hence along
the tokens of plain decoding: whether each draft would propose the next of them decides everything,
and is found here by letting it read them.

`accept` compares three drafts on the bundled model: its own small T3, T3's first layers with its
head (early exit), and n-grams of the utterance so far. `cost` measures how much longer a pass takes
that reads several positions. `report` multiplies them: tokens a pass by its cost and the draft's.
`identity` decodes the bundled model speculatively, with its small T3 as the draft, and compares
every token with plain decoding; `--fault` accepts one unchecked proposal in each utterance.
"""

from __future__ import annotations

import argparse
import copy
import json
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import nightingale
from nightingale import Nightingale
from nightingale.backends.torch.t3.decode import decode
from nightingale.backends.torch.t3.model import T3, T3Config, Utterance
from nightingale.core import Options, Plan, T3Prompt
from nightingale.loader import LoadOptions
from nightingale.measure import texts
from nightingale.measure.random_model import random_components
from nightingale.measure.stages import torch_stages
from nightingale.weights.load import load_into

DRAFT = Path(nightingale.__file__).parent / "fledgling/t3_draft.safetensors"
DRAFT_SIZES = T3Config(
    "fledgling", 2, 64, 2, 192, 256, 6563, 150, max_text=400, max_speech=1000
)  # of the bundled file
LENGTHS = (1, 2, 3, 4, 6, 8)  # proposals in a pass
TEMPERATURES = (0.8, 0.0)
N_GRAM = 3  # the longest history that is looked up
N_SENTENCES = 200  # held-out ones; further utterances have other seeds
MAX_TOKENS = 250  # without its guard, the model may not find an end
POSITIONS = (1, 2, 3, 4, 5, 7, 9)
TEXT = "It is late, and nobody minds that the lights are still on in the kitchen."

Agreements = list[bool]  # would the draft propose this token?


def proposals(
    model: T3, text: Sequence[int], voice: T3Prompt, options: Options, said: Sequence[int]
) -> list[int]:
    """What a model draws at each place behind the tokens that were said, with the same noise."""
    drawn: list[int] = []
    usual = model._sampler(options, None)

    def sample(logits: Tensor, seen: Tensor, noise: Tensor) -> Tensor:
        token = usual(logits, seen, noise)
        drawn.append(int(token))
        return token

    prefix = model.prefix(voice, options.exaggeration)
    utterance = Utterance(model, text, prefix, options, None)
    limit = len(said) or options.max_tokens
    for _ in decode(utterance, sample, model._noise(options.seed), limit, said):
        pass
    return drawn


def n_grams(prompt: Sequence[int], said: Sequence[int]) -> list[int]:
    """At each place, what followed the last occurrence of the longest known end; -1: nothing."""
    history, followed, found = list(prompt), dict[tuple[int, ...], int](), []
    for token in said:
        ends = [tuple(history[-n:]) for n in range(min(N_GRAM, len(history)), 0, -1)]
        found.append(next((followed[end] for end in ends if end in followed), -1))
        followed |= dict.fromkeys(ends, token)
        history.append(token)
    return found


def tokens_per_pass(agreements: Sequence[Agreements], k: int) -> float:
    """Up to `k` proposals are accepted, and one more token comes from the pass itself."""
    n_tokens = n_passes = 0
    for agreed in agreements:
        at = 0
        while at < len(agreed):
            run = 0
            while run < k and at + run < len(agreed) and agreed[at + run]:
                run += 1
            at += run + 1
            n_passes += 1
        n_tokens += len(agreed)
    return n_tokens / n_passes


def shallow(t3: T3, n_layers: int) -> T3:
    """Its first layers, with its own norm and head."""
    short = copy.deepcopy(t3)
    short.config = replace(t3.config, n_layers=n_layers)
    layers = t3.tfmr.layers
    assert isinstance(layers, nn.ModuleList)
    short.tfmr.layers = layers[:n_layers]
    return short


def bundled_draft() -> T3:
    with torch.device("meta"):
        draft = T3(DRAFT_SIZES)
    load_into(draft, DRAFT)
    return draft.eval().requires_grad_(False)


def accept(n_utterances: int) -> dict[str, Any]:
    tts = Nightingale.load("fledgling", plan="reference", watermark=False, threads=1)
    t3, voice = torch_stages(tts.components).t3, tts.components.voice.t3
    models = {"small T3": bundled_draft()}
    models |= {f"{n} of {t3.config.n_layers} layers": shallow(t3, n) for n in (3, 4, 5)}
    sentences = texts.read("held_out", n_utterances)
    result: dict[str, Any] = {"utterances": n_utterances}
    result["draft_bytes"] = {name: model.step_bytes for name, model in models.items()}
    result["t3_bytes"] = t3.step_bytes
    for temperature in TEMPERATURES:
        agreed: dict[str, list[Agreements]] = {}
        for seed, sentence in enumerate(sentences):
            text = tts.components.tokenizer.encode(sentence, "en")
            options = replace(
                tts.components.spec.options,
                seed=seed,
                temperature=temperature,
                guard=False,
                max_tokens=MAX_TOKENS,
            )
            said = proposals(t3, text, voice, options, ())
            assert proposals(t3, text, voice, options, said) == said, "T3 itself must agree"
            if temperature:  # and the check can fail
                other = replace(options, seed=seed + 1000)
                assert proposals(t3, text, voice, other, said) != said
            proposed = {
                name: proposals(model, text, voice, options, said) for name, model in models.items()
            }
            proposed["n-grams"] = n_grams(voice.tokens.tolist(), said)
            for name, ours in proposed.items():
                pairs = zip(ours, said, strict=True)
                agreed.setdefault(name, []).append([a == b for a, b in pairs])
        result[f"temperature {temperature}"] = {
            name: {
                "accepted": round(statistics.mean(x for row in rows for x in row), 3),
                "tokens": sum(map(len, rows)),
                "tokens_per_pass": {k: round(tokens_per_pass(rows, k), 3) for k in LENGTHS},
            }
            for name, rows in agreed.items()
        }
    return result


class Speculation:
    """One utterance: the draft proposes up to `k` tokens, T3 reads them all in one pass."""

    def __init__(
        self, t3: T3, draft: T3, text: Sequence[int], voice: T3Prompt, options: Options, k: int
    ) -> None:
        self._t3, self._draft, self._k = t3, draft, k
        self._utterance, self._drafted = (
            Utterance(model, text, model.prefix(voice, options.exaggeration), options, None)
            for model in (t3, draft)
        )
        self._sampler = t3.sequence_sampler(options, None)
        self._sample, self._noise = t3._sampler(options, None), t3._noise(options.seed)
        self._n_read = 0  # tokens of `said` that the draft has read
        self.said: list[int] = []
        self.n_passes = 1

    @torch.inference_mode()
    def run(self, *, fault: bool = False) -> list[int]:
        """All tokens; with a fault, the first proposal that T3 rejects is accepted all the same."""
        self.said.append(self._sampler.draw(self._utterance.first()))
        self._drafted.first()
        cache, _ = self._utterance.slot
        while not self._sampler.is_over:
            proposed = self._propose()
            before, n_said = cache.length, len(self.said)
            for place, logits in enumerate(self._read([self.said[-1], *proposed])):
                token = self._sampler.draw(logits)
                is_rejected = place < len(proposed) and token != proposed[place]
                if is_rejected and fault:
                    token, is_rejected, fault = proposed[place], False, False
                self.said.append(token)
                if is_rejected or self._sampler.is_over:
                    break
            cache.trim(before + len(self.said) - n_said)
        return self.said

    def _propose(self) -> list[int]:
        """What the draft draws with the noise of the next tokens; its cache keeps only `said`."""
        draft, (cache, _) = self._drafted, self._drafted.slot
        for index in range(self._n_read, len(self.said)):
            logits = draft.next(torch.tensor(self.said[index]), index)
        self._n_read, length = len(self.said), cache.length
        assert self._sampler.seen is not None
        seen, proposed = self._sampler.seen.clone(), list[int]()
        for index in range(len(self.said), len(self.said) + self._k):
            token = self._sample(logits, seen, self._noise(index))
            seen[token] = True
            proposed.append(int(token))
            if len(proposed) < self._k:
                logits = draft.next(token, index)
        cache.trim(length)
        return proposed

    def _read(self, tokens: list[int]) -> list[Tensor]:
        """The guided logits behind each of them, from one pass."""
        t3, one, first = self._t3, self._utterance, len(self.said) - 1
        embedded = [t3.embed_speech(torch.tensor(t), first + i) for i, t in enumerate(tokens)]
        hidden = t3.tfmr(one.expand(torch.cat(embedded, dim=1)), one.slot[0])
        self.n_passes += 1
        return [one.close(t3.speech_head(hidden[:, i])) for i in range(len(tokens))]


def identity(n_utterances: int, weights: str, k: int, *, fault: bool) -> Iterator[dict[str, Any]]:
    """A line for each temperature: utterances whose tokens differ, and seconds of either way."""
    plan = Plan("speculation", t3=weights)  # type: ignore[arg-type]
    tts = Nightingale.load("fledgling", plan=plan, watermark=False, threads=1)
    t3, voice, draft = torch_stages(tts.components).t3, tts.components.voice.t3, bundled_draft()
    sentences = texts.read("held_out", min(n_utterances, N_SENTENCES))
    for temperature in TEMPERATURES:
        n_differ = n_tokens = n_passes = 0
        spent = {"plain": 0.0, "speculative": 0.0}
        for seed in range(n_utterances):
            text = tts.components.tokenizer.encode(sentences[seed % len(sentences)], "en")
            options = replace(
                tts.components.spec.options,
                seed=seed, temperature=temperature, guard=False, max_tokens=MAX_TOKENS,
            )  # fmt: skip
            begun = time.process_time()
            plain = list(t3.decode(text, t3.prefix(voice, options.exaggeration), options))
            between = time.process_time()
            speculation = Speculation(t3, draft, text, voice, options, k)
            said = speculation.run(fault=fault)
            spent["speculative"] += time.process_time() - between
            spent["plain"] += between - begun
            n_differ += said != plain
            n_tokens += len(plain)
            n_passes += speculation.n_passes
        yield {
            "temperature": temperature, "t3": weights, "k": k, "fault": fault,
            "utterances": n_utterances, "tokens": n_tokens, "differ": n_differ,
            "tokens_per_pass": round(n_tokens / n_passes, 3),
            "cpu_seconds": {way: round(seconds, 1) for way, seconds in spent.items()},
        }  # fmt: skip


def passes(t3: T3, voice: T3Prompt, text: Sequence[int], options: Options) -> Iterator[Any]:
    """A function for each number of positions, which computes their logits and forgets them."""
    utterance = Utterance(t3, text, t3.prefix(voice, options.exaggeration), options, None)
    utterance.first()
    cache, _ = utterance.slot
    for n in POSITIONS:
        x = torch.cat([t3.embed_speech(torch.tensor(7 * i), i) for i in range(n)], dim=1)

        def run(x: Tensor = x) -> None:
            length = cache.length
            hidden = t3.tfmr(utterance.expand(x), cache)
            t3.speech_head(hidden.flatten(0, 1))
            cache.trim(length)

        yield run


@torch.inference_mode()
def cost(name: str, weights: str, threads: int, rounds: int) -> dict[str, Any]:
    """Rounds of all numbers of positions take turns; medians, by processor time too."""
    plan = Plan("speculation", t3=weights)  # type: ignore[arg-type]
    model = random_components(name, LoadOptions("cpu", plan=plan, threads=threads))
    options = model.spec.options
    text = model.tokenizer.encode(TEXT, "en")
    ways = list(passes(torch_stages(model).t3, model.voice.t3, text, options))
    clocks: dict[str, Callable[[], float]] = {"wall": time.perf_counter, "cpu": time.process_time}
    spent: dict[str, list[list[float]]] = {clock: [[] for _ in ways] for clock in clocks}
    for _ in range(rounds):
        for number, run in enumerate(ways):
            begun = {clock: read() for clock, read in clocks.items()}
            run()
            for clock, read in clocks.items():
                spent[clock][number].append(read() - begun[clock])
    medians = {clock: [statistics.median(row) for row in rows] for clock, rows in spent.items()}
    result: dict[str, Any] = {"t3": weights, "step_ms": round(1e3 * medians["wall"][0], 1)}
    for clock, row in medians.items():
        ratios = [round(one / row[0], 2) for one in row]
        result[f"by_{clock}"] = dict(zip(POSITIONS, ratios, strict=True))
    return result


def report(acceptance: dict[str, Any], costs: dict[str, Any]) -> list[str]:
    """The gain of each draft at its best length: tokens a pass by (pass + drafts)."""
    lines = ["| temperature | draft | accepted | weights | best k | gain |", "|" + "---|" * 6]
    for way in costs["results"]:
        for temperature in TEMPERATURES:
            for name, found in acceptance[f"temperature {temperature}"].items():
                share = acceptance["draft_bytes"].get(name, 0) / acceptance["t3_bytes"]
                gains = {
                    k: found["tokens_per_pass"][str(k)] / (way["by_cpu"][str(k + 1)] + k * share)
                    for k in LENGTHS
                }
                k, gain = max(gains.items(), key=lambda pair: pair[1])
                cells = temperature, name, f"{found['accepted']:.0%}", way["t3"], k, f"{gain:.2f}"
                lines.append("| " + " | ".join(map(str, cells)) + " |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    kinds = parser.add_subparsers(dest="kind", required=True)
    one = kinds.add_parser("accept")
    one.add_argument("--utterances", type=int, default=50)
    same = kinds.add_parser("identity")
    same.add_argument("--utterances", type=int, default=1000)
    same.add_argument("--t3", default="int8")
    same.add_argument("--proposals", type=int, default=2)
    same.add_argument("--fault", action="store_true")
    two = kinds.add_parser("cost")
    two.add_argument("--model", default="multilingual-v3")
    two.add_argument("--t3", nargs="+", default=["int8", "int4"])
    two.add_argument("--threads", type=int, default=1)
    two.add_argument("--rounds", type=int, default=15)
    both = kinds.add_parser("report")
    both.add_argument("files", nargs=2, type=Path)
    args = parser.parse_args()
    if getattr(args, "utterances", 1) < 1:
        parser.error("--utterances must be at least 1")
    if args.kind == "report":
        print("\n".join(report(*(json.loads(file.read_text()) for file in args.files))))
    elif args.kind == "identity":
        for row in identity(args.utterances, args.t3, args.proposals, fault=args.fault):
            print(json.dumps(row), flush=True)
    elif args.kind == "cost":
        rows = [cost(args.model, t3, args.threads, args.rounds) for t3 in args.t3]
        print(json.dumps({"model": args.model, "threads": args.threads, "results": rows}))
    else:
        print(json.dumps(accept(args.utterances)))


if __name__ == "__main__":
    main()
