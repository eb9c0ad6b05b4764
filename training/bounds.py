"""What each stage loses: the teachers' speech through the vocoder, through flow and vocoder, and
text through all three. Development texts only: `python -m training.bounds words`, `... speakers`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
import typer

from nightingale.audio.files import Wave
from nightingale.audio.mel import flow_mel
from nightingale.backends.torch.vocoder.model import fade_in
from nightingale.core import SAMPLES_PER_FRAME, SAMPLES_PER_SECOND, FlowPrompt
from nightingale.measure.quality import Clip, Judge
from nightingale.measure.speakers import SpeakerJudge, centroid, match
from nightingale.measure.stages import TorchStages, torch_stages
from nightingale.measure.transcriber import Transcriber
from nightingale.weights.manifest import BUNDLE
from training import corpus, evaluate
from training.texts import read
from training.token_corpus import NAME, FastTeacher, load_tokenizer, tokens_of
from training.work import work

STAGES = ("teacher", "vocoder", "flow", "t3")
N_HEARD = 3  # utterances or sentences of each voice
N_FEW = 3  # clips by which a voice of half a minute is known


def chosen(stages: str, known: tuple[str, ...]) -> list[str]:
    listed = stages.split(",")
    if set(listed) - set(known):
        raise typer.BadParameter(f"stages are {', '.join(known)}, not {stages!r}")
    return listed


@torch.inference_mode()
def rendered(stages: TorchStages, mel: torch.Tensor, seed: int) -> Wave:
    samples: Wave = fade_in(stages.vocoder.vocode(mel, seed)).numpy()
    return samples


def revocoded(stages: TorchStages, wave: Wave, seed: int) -> Wave:
    whole = wave[: len(wave) // SAMPLES_PER_FRAME * SAMPLES_PER_FRAME]
    return rendered(stages, flow_mel(torch.from_numpy(whole)).T, seed)


@torch.inference_mode()
def rebuilt(stages: TorchStages, tokens: list[int], prompt: FlowPrompt, seed: int) -> Wave:
    return rendered(stages, stages.flow.render(torch.tensor(tokens), prompt, seed), seed)


def words(
    folder: Path = BUNDLE, kind: str = "sentence", n: int = 60, stages: str = ",".join(STAGES)
) -> None:
    """Word error rate of the first n development texts of a kind, behind each stage."""
    torch.set_num_threads(1)
    rows = map(json.loads, (work() / "develop" / f"{NAME}.jsonl").read_text().splitlines())
    tokens = {row["id"]: row["tokens"] for row in rows}
    texts = [t for t in read(work() / "texts" / "develop.jsonl") if t.kind == kind]
    texts = [text for text in texts if text.id in tokens][:n]
    ear, teacher = Judge(Transcriber(work() / "assets", 1)), FastTeacher(work() / "assets")
    tts = evaluate.Synthesizer(folder, n).tts("standard")
    parts, prompt = torch_stages(tts.components), tts.components.voice.flow

    def say(stage: str) -> Iterator[Clip]:
        for seed, text in enumerate(texts):
            if stage == "t3":
                wave = tts.say(text.text, seed=seed, max_tokens=500).samples
            elif stage == "flow":
                wave = rebuilt(parts, tokens[text.id], prompt, seed)
            else:
                wave = teacher.say(text.text).samples.astype(np.float32) / np.float32(32768)
                wave = revocoded(parts, wave, seed) if stage == "vocoder" else wave
            yield Clip(wave, text.text, NAME)

    for stage in chosen(stages, STAGES):
        report = ear.score(say(stage), {})
        n_right = sum(not row.words.rate for row in report.rows)
        typer.echo(f"{kind}, {stage}: {report.words}, {n_right} of {len(texts)} without error")


def speakers(folder: Path = BUNDLE, n: int = N_HEARD, stages: str = ",".join(STAGES[1:])) -> None:
    """How often the right one of all voices is the nearest, behind each stage: eleven that were
    learned from, and six that were not and are for choices alone, if they have spoken."""
    torch.set_num_threads(1)
    judge = SpeakerJudge(work() / "assets")
    enrolled, others = {}, {}
    for name in (v for v in corpus.voices() if v in {*corpus.cast(), *corpus.DEVELOPMENT_VOICES}):
        n_enrolled = N_FEW if corpus.is_extra(name) else evaluate.N_ENROLLED
        long = evaluate.long_ones(name)
        enrolled[name], others[name] = long[:n_enrolled], long[n_enrolled:][:n]
    known = {
        name: centroid([judge.embed(u.samples(), SAMPLES_PER_SECOND) for u in utterances])
        for name, utterances in enrolled.items()
    }
    synthesizer, tokenizer = evaluate.Synthesizer(folder, n), load_tokenizer()
    tts = synthesizer.tts("standard")
    parts = torch_stages(tts.components)
    texts = [t.text for t in read(work() / "texts" / "develop.jsonl") if t.kind == "sentence"]

    def say(stage: str, name: str, number: int) -> Iterator[Wave]:
        voice = synthesizer.clone(name)
        for seed, utterance in enumerate(others[name]):
            if stage == "t3":
                text = texts[-1 - number * n - seed]
                yield tts.say(text, voice, seed=seed, max_tokens=400).samples
            elif stage == "flow":
                samples = np.round(utterance.samples() * 32767).astype(np.int16)
                yield rebuilt(parts, tokens_of(tokenizer, samples), voice.flow, seed)
            else:
                yield revocoded(parts, utterance.samples(), seed)

    for stage in chosen(stages, STAGES[1:]):
        right: dict[str, list[bool]] = {}
        own: list[float] = []
        names = [name for name in known if name not in (NAME, *corpus.HELD_OUT_VOICES)]
        for number, name in enumerate(names):
            for wave in say(stage, name, number):
                found = match(judge.embed(wave, SAMPLES_PER_SECOND), name, known)
                right.setdefault(name, []).append(found.is_right)
                own.append(found.own)
        n_right = sum(map(sum, right.values()))
        each = ", ".join(f"{name} {sum(found)}" for name, found in right.items())
        mean = f"similarity {np.mean(own):.2f}"
        typer.echo(f"{stage}: {n_right} of {len(own)} nearest, {mean} ({each}; {n} each)")


if __name__ == "__main__":
    app = typer.Typer()
    app.command("words")(words)
    app.command("speakers")(speakers)
    app()
