"""Speaker embeddings: a public encoder for T3, and a small x-vector network distilled from it.

The speaker encoder is not trained here: Resemblyzer's weights have the layout of the released one.
The x-vector network reads the flow's filter bank.
"""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
import typer
from numpy.typing import NDArray
from torch import Tensor, nn

from nightingale.audio.mel import kaldi_fbank
from nightingale.voice.encoders import load_encoders
from nightingale.voice.speaker_encoder import DEAD_TENSORS, SpeakerEncoder
from nightingale.voice.xvector import XVector, XVectorConfig
from nightingale.weights.manifest import BUNDLE
from training import corpus
from training.loop import Losses, Schedule, load_ema, train
from training.work import work

D_XVECTOR = 192
CONFIG = XVectorConfig(
    n_planes=8, n_channels=64, growth=16, d_embedding=D_XVECTOR, n_layers=(4, 8, 4)
)
FOLDER = work() / "xvector"
VECTORS = work() / "vectors"
N_CLIPS = 48  # of each voice, a few seconds each
N_FEW = 12  # of a voice that has spoken for half a minute
SECONDS = 5.0


def speaker_encoder() -> SpeakerEncoder:
    """Resemblyzer's weights under the names of the released ones."""
    file = work() / "assets" / "resemblyzer" / "pretrained.pt"
    state = torch.load(file, weights_only=True, map_location="cpu")["model_state"]
    named = {name.replace("linear.", "proj."): tensor for name, tensor in state.items()}
    encoder = SpeakerEncoder()
    encoder.load_state_dict({k: v for k, v in named.items() if k not in DEAD_TENSORS})
    return encoder.eval().requires_grad_(False)


def clips(voice: str, n: int | None = None) -> list[Tensor]:
    """Pieces of about five seconds at 16 kHz, utterances joined where they are short."""
    n = n or (N_FEW if corpus.is_extra(voice) else N_CLIPS)
    utterances = [u for u in corpus.read(voice) if u.split != "short"]
    random = np.random.default_rng(3)
    made: list[Tensor] = []
    while len(made) < n:
        parts: list[Tensor] = []
        while sum(len(part) for part in parts) < SECONDS * 16_000:
            parts.append(utterances[random.integers(len(utterances))].speech())
        made.append(torch.cat(parts)[: int(SECONDS * 16_000)])
    return made


def embed(voice: str) -> Path:
    """(clips, 256) of a voice, kept."""
    torch.set_num_threads(1)
    file = VECTORS / f"{voice}.npy"
    encoder = speaker_encoder()
    vectors = [encoder.embed(clip).numpy() for clip in clips(voice)]
    file.parent.mkdir(parents=True, exist_ok=True)
    np.save(file, np.stack(vectors))
    return file


def vectors_by_voice() -> dict[str, NDArray[np.float32]]:
    return {path.stem: np.load(path) for path in sorted(VECTORS.glob("*.npy"))}


def targets_by_voice() -> dict[str, NDArray[np.float32]]:
    """What the x-vector should be, (clips, 192): each value of the speaker encoder in its own
    measure around the mean of the cast, then turned and cut to the size of an x-vector."""
    vectors = vectors_by_voice()
    cast = [x for v, x in vectors.items() if corpus.is_learned(v) and not corpus.is_extra(v)]
    known = np.concatenate(cast)
    center, spread = known.mean(0), known.std(0) + 0.01
    turn = np.linalg.qr(np.random.default_rng(23).normal(size=(256, 256)))[0][:, :D_XVECTOR]
    return {v: ((x - center) / spread @ turn).astype(np.float32) for v, x in vectors.items()}


class XVectorStudent(nn.Module):
    """The x-vector network; in training its norms use and record batch statistics."""

    def __init__(self) -> None:
        super().__init__()
        self.network = XVector(CONFIG)

    def forward(self, fbank: Tensor) -> Tensor:
        """(B, F, 80), means removed -> (B, 192)"""
        return self.network.xvector(self.network.head(fbank.transpose(1, 2)[:, None]))


def main(
    n_steps: int = 700,
    minutes: float | None = None,
    threads: int = 1,
    ship: bool = False,
    n_rows: int = 24,
) -> None:
    """Train the x-vector network; --ship: begin with that of the package."""
    torch.set_num_threads(threads)
    vectors = {v: x for v, x in targets_by_voice().items() if corpus.is_learned(v)}
    fbanks = {voice: torch.stack([kaldi_fbank(clip) for clip in clips(voice)]) for voice in vectors}
    names, student = sorted(vectors), XVectorStudent()
    if ship:
        student.network = shipped().requires_grad_(True)
    make_norms_trainable(student)

    def losses(step: int) -> Losses:
        random = np.random.default_rng((11, step))
        length = int(random.integers(200, 490))
        rows, wanted = [], []
        for _ in range(n_rows):
            voice = names[random.integers(len(names))]
            clip = int(random.integers(len(fbanks[voice])))
            at = int(random.integers(498 - length))
            rows.append(fbanks[voice][clip, at : at + length])
            wanted.append(torch.from_numpy(vectors[voice][clip]))
        fbank = torch.stack(rows)
        fbank = fbank - fbank.mean(1, keepdim=True)
        loss = 1 - F.cosine_similarity(student(fbank), torch.stack(wanted), dim=1).mean()
        return {"loss": loss}

    train(student, losses, Schedule(n_steps, lr=1e-3), FOLDER, minutes)


class TrainableBatchNorm(nn.Module):
    """A norm in training mode: batch statistics, with running ones recorded."""

    running_mean: Tensor
    running_var: Tensor
    weight: Tensor | None
    bias: Tensor | None

    def forward(self, x: Tensor) -> Tensor:
        statistics = self.running_mean, self.running_var
        return F.batch_norm(x, *statistics, self.weight, self.bias, training=True, momentum=0.05)


def make_norms_trainable(student: XVectorStudent) -> None:
    for module in student.modules():
        if hasattr(module, "running_mean"):
            module.__class__ = TrainableBatchNorm


def load() -> XVector:
    student = XVectorStudent()
    load_ema(student, FOLDER)
    return student.network


def shipped() -> XVector:
    """That of the package."""
    return load_encoders(BUNDLE / "s3gen.safetensors", BUNDLE / "ve.safetensors").xvector


def embed_all() -> None:
    """What the speaker encoder says of every voice."""
    with ProcessPoolExecutor(2, multiprocessing.get_context("spawn")) as pool:
        for file in pool.map(embed, corpus.voices()):
            typer.echo(file)


if __name__ == "__main__":
    app = typer.Typer()
    app.command("embed")(embed_all)
    app.command("train")(main)
    app()
