"""The flow that ships, deeper and with more voices: `python -m training.refine`, on both cores.

Its speech tokens stay what they are, so T3 need not be trained again. New blocks begin as identity:
at the first step the flow is the one that ships. The mean-flow student is distilled from it anew.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import soxr
import torch
import typer
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Tensor, nn

from nightingale.audio.mel import flow_mel
from nightingale.audio.resample import resample
from nightingale.backends.torch.flow.estimator import Block, EstimatorConfig
from nightingale.backends.torch.flow.model import Flow, FlowConfig
from nightingale.core import SAMPLES_PER_TOKEN
from nightingale.voice.clone import Encoders
from nightingale.voice.encoders import load_encoders
from nightingale.weights.manifest import BUNDLE
from training import corpus
from training.bend import MARK
from training.clips import RATE
from training.flow import (
    ESTIMATOR,
    MEANFLOW,
    Batch,
    config,
    distill,
    losses,
    transformers,
    window_mask,
)  # fmt: skip
from training.loop import Plan, hasten, load_mean, processes, train
from training.recite import NAME, tokens_of
from training.work import work

Arrays = dict[str, NDArray[Any]]
SPEECH = work() / "refine"
FOLDER, STUDENT = work() / "flow_refined", work() / "meanflow_refined"
N_MID_BLOCKS = 4
N_PARTS, PART = 4, 1000  # utterances of the fast voice
OWN_SPEEDS, N_BENT = (0.8, 0.86, 0.92, 1.08, 1.15, 1.22), 150
SPEEDS = (0.84, 0.92, 1.1, 1.2)
N_XVECTORS = 24
LENGTHS = (64, 128, 224, 384)  # tokens
OWN, BENT = 0.5, 0.4  # of all rows the fast voice's; of the other voices' rows, resampled ones


def jobs() -> list[tuple[str, str, float, slice]]:
    """Name, voice, speed and utterances of everything that is learned from."""
    made = [(f"{NAME}_{n}", NAME, 1.0, slice(n * PART, (n + 1) * PART)) for n in range(N_PARTS)]
    for n, speed in enumerate(OWN_SPEEDS):
        begin = N_PARTS * PART + n * N_BENT
        made.append((bent_name(NAME, speed), NAME, speed, slice(begin, begin + N_BENT)))
    for voice in corpus.voices():
        if voice != NAME and voice not in corpus.HELD_OUT_VOICES:
            made.append((voice, voice, 1.0, slice(None)))
            made += [(bent_name(voice, speed), voice, speed, slice(None)) for speed in SPEEDS]
    return made


def bent_name(voice: str, speed: float) -> str:
    return f"{voice}{MARK}{round(100 * speed)}"


@torch.inference_mode()
def prepare(encoders: Encoders, voice: str, speed: float, which: slice, file: Path) -> None:
    """Tokens and mel frames of a voice end to end, and x-vectors as cloning makes them."""
    found = [u for u in corpus.read(voice) if u.split == "train"]
    order = np.random.default_rng(9).permutation(len(found))
    tokens: list[NDArray[np.int16]] = []
    mels: list[NDArray[np.float16]] = []
    waves: list[NDArray[np.float32]] = []
    for utterance in [found[i] for i in order][which]:
        wave = soxr.resample(utterance.samples(), RATE * speed, RATE)
        wave = wave[: len(wave) // SAMPLES_PER_TOKEN * SAMPLES_PER_TOKEN]
        samples = np.clip(np.round(wave * 32767), -32768, 32767).astype(np.int16)
        tokens.append(np.array(tokens_of(encoders.tokenizer, samples), np.int16))
        mels.append(flow_mel(torch.from_numpy(wave)).numpy().astype(np.float16))
        waves.append(wave)
    whole, random = np.concatenate(waves), np.random.default_rng(len(waves))
    vectors = []
    for _ in range(N_XVECTORS):
        n = round(random.uniform(3.5, 10) * RATE)
        at = int(random.integers(len(whole) - n))
        heard = resample(torch.from_numpy(whole[at : at + n]), RATE, 16_000)
        vectors.append(encoders.xvector.embed(heard).numpy())
    file.parent.mkdir(parents=True, exist_ok=True)
    xvectors = np.stack(vectors)
    np.savez(file, tokens=np.concatenate(tokens), mel=np.concatenate(mels), xvectors=xvectors)


def speak(reverse: bool = False) -> None:
    """All that is learned from, unless it is there; a second process can begin at the end."""
    torch.set_num_threads(1)
    encoders = load_encoders(BUNDLE / "s3gen.safetensors", BUNDLE / "ve.safetensors")
    for name, voice, speed, which in jobs()[:: -1 if reverse else 1]:
        file = SPEECH / f"{name}.npz"
        if not file.is_file():
            prepare(encoders, voice, speed, which, file)
            typer.echo(name)


class Speech:
    """Draws pieces of one length, in any voice."""

    def __init__(self) -> None:
        self._own: list[Arrays] = []
        self._bent: list[Arrays] = []
        self._others: list[Arrays] = []
        for file in sorted(SPEECH.glob("*.npz")):
            arrays = dict(np.load(file).items())
            if MARK in file.stem:
                self._bent.append(arrays)
            else:
                (self._own if file.stem.startswith(NAME) else self._others).append(arrays)

    def batch(self, step: int, n_tokens: int) -> Batch:
        random = np.random.default_rng((17, step))
        length, rows = int(random.choice(LENGTHS)), []
        for _ in range(max(1, n_tokens // length)):
            others = self._bent if random.random() < BENT else self._others
            among = self._own if random.random() < OWN else others
            voice = among[random.integers(len(among))]
            at = int(random.integers(len(voice["tokens"]) - length))
            mel = voice["mel"][2 * at : 2 * (at + length)]
            xvector = voice["xvectors"][random.integers(N_XVECTORS)]
            rows.append((voice["tokens"][at : at + length], mel, xvector))
        n_prompt = 0 if random.random() < 0.15 else int(length * random.uniform(0.1, 0.7))
        mask = None if random.random() < 0.5 else window_mask(length, n_prompt, random)
        columns = [torch.from_numpy(np.stack(column)) for column in zip(*rows, strict=True)]
        return Batch(columns[0].long(), columns[1].float(), columns[2].float(), n_prompt, mask)


def deeper(estimator: EstimatorConfig = ESTIMATOR) -> FlowConfig:
    return config(replace(estimator, n_mid_blocks=N_MID_BLOCKS))


def shipped() -> Flow:
    """The flow of the package with more blocks in its middle, which change nothing yet."""
    tensors = load_file(BUNDLE / "s3gen.safetensors")
    flow = Flow(deeper())
    load_shallow(flow, {k[5:]: v.float() for k, v in tensors.items() if k.startswith("flow.")})
    return flow


def shipped_student(teacher: Flow) -> Flow:
    """Likewise the mean-flow student; what it shares is the teacher's."""
    own = load_file(BUNDLE / "s3gen_meanflow.safetensors")
    shared = {k: v for k, v in teacher.state_dict().items() if not k.startswith("decoder.")}
    student = Flow(deeper(MEANFLOW))
    load_shallow(student, shared | {k[5:]: v.float() for k, v in own.items()})
    return student


def load_shallow(flow: Flow, tensors: dict[str, Tensor]) -> None:
    """Tensors of a flow with as many blocks or fewer; the last ones are then made identity."""
    prefix = "decoder.estimator.mid_blocks."
    n_known = 1 + max(int(k.split(".")[3]) for k in tensors if k.startswith(prefix))
    for number, block in enumerate(flow.estimator.mid_blocks):
        assert isinstance(block, Block)
        if number >= n_known:
            make_identity(block)
            tensors = tensors | block.state_dict(prefix=f"{prefix}{number}.")
    flow.load_state_dict(tensors)


@torch.no_grad()
def make_identity(block: Block) -> None:
    around = block.unit.res_conv
    silent: list[nn.Module] = [block.unit.block2.norm, around]
    silent += [part for t in block.transformers for part in (t.attn1.to_out, t.ff.down_proj)]
    for parameter in (p for part in silent for p in part.parameters()):
        parameter.zero_()
    around.weight.copy_(torch.eye(len(around.weight))[..., None])


def main(
    n_steps: int = 4000, minutes: float | None = None, n_tokens: int = 1000, rate: float = 5e-4
) -> None:
    torch.set_num_threads(1)
    processes()
    flow, speech = shipped(), Speech()
    hasten(transformers(flow))
    plan = Plan(n_steps, rate=rate, warmup=100, every=200)
    train(flow, lambda step: losses(flow, speech.batch(step, n_tokens)), plan, FOLDER, minutes)


def load(folder: Path = FOLDER) -> Flow:
    """What was learned."""
    flow = Flow(deeper(MEANFLOW if folder == STUDENT else ESTIMATOR))
    load_mean(flow, folder)
    return flow


def teach_meanflow(n_steps: int = 200, minutes: float | None = None, n_tokens: int = 300) -> None:
    """From the student that ships, as training.flow does, with these voices."""
    torch.set_num_threads(1)
    processes()
    teacher, speech = load(), Speech()
    student = shipped_student(teacher)
    plan = Plan(n_steps, rate=3e-4, warmup=30, every=50, average=0.99)
    distill(teacher, student, lambda step: speech.batch(step, n_tokens), plan, STUDENT, minutes)


if __name__ == "__main__":
    app = typer.Typer()
    app.command("speak")(speak)
    app.command("train")(main)
    app.command("meanflow")(teach_meanflow)
    app()
