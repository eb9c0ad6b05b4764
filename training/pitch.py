"""The ends of utterances, for the vocoder's pitch predictor: `python -m training.pitch`, minutes.

Its convolutions read zeros beyond the ends, which are loud where a mel's logarithms are expected.
Training had left ends out, so the first and the last frame of every utterance were given a pitch of
20 to 40 Hz, and a third of the sentences ended with a burst of 60 ms, 35 dB below full scale. Here
it learns to say of any piece what it says when there is silence around. Nothing else changes.
"""

from __future__ import annotations

import copy

import numpy as np
import torch
import torch.nn.functional as F
import typer
from safetensors.torch import load_file
from torch import Tensor, nn

from nightingale.audio.mel import flow_mel
from nightingale.backends.torch.vocoder.model import F0_CONTEXT, Vocoder, VocoderConfig
from nightingale.weights.config import sized
from nightingale.weights.load import read_config
from nightingale.weights.manifest import BUNDLE
from training import corpus
from training.loop import Losses, Schedule, train
from training.vocoder import VOICED_HZ
from training.work import work

FOLDER = work() / "pitch"
PREFIX = "mel2wav."
SILENT = -11.5  # logarithm of the smallest magnitude
N_FRAMES = 48
N_UTTERANCES = 400  # of each voice at most
N_HELD_OUT = 20  # of each voice


def shipped() -> Vocoder:
    file = BUNDLE / "s3gen.safetensors"
    tensors = load_file(file)
    vocoder = Vocoder(sized(VocoderConfig(), read_config(file)["mel2wav"]))
    vocoder.load_state_dict(
        {k.removeprefix(PREFIX): v.float() for k, v in tensors.items() if k.startswith(PREFIX)}
    )
    return vocoder.eval().requires_grad_(False)


@torch.no_grad()
def amid_silence(predictor: nn.Module, mel: Tensor) -> Tensor:
    """(B, 80, M) -> (B, M): the pitch when there is silence around."""
    padded = F.pad(mel, (2 * F0_CONTEXT, 2 * F0_CONTEXT), value=SILENT)
    found: Tensor = predictor(padded)[:, 2 * F0_CONTEXT : -2 * F0_CONTEXT]
    return found


def draw(mels: list[Tensor], n: int, step: int) -> Tensor:
    """(n, 80, N_FRAMES): beginnings, ends, and pieces from anywhere."""
    random, pieces = np.random.default_rng(step), []
    for number in random.integers(len(mels), size=n):
        spare = mels[number].shape[1] - N_FRAMES
        at = (0, spare, int(random.integers(spare + 1)))[random.integers(3)]
        pieces.append(mels[number][:, at : at + N_FRAMES])
    return torch.stack(pieces)


def losses(predictor: nn.Module, teacher: nn.Module, mel: Tensor) -> Losses:
    """In units of 10 Hz; where unvoiced, all that counts is to stay below the threshold."""
    found, wanted = predictor(mel), amid_silence(teacher, mel)
    off = torch.where(wanted > VOICED_HZ, (found - wanted).abs(), F.relu(found - VOICED_HZ / 4))
    return {"loss": off.mean() / 10}


@torch.inference_mode()
def wrong(predictor: nn.Module, teacher: nn.Module, mel: Tensor) -> str:
    """How many frames are voiced that should not be, or the other way round: at the ends and
    between them."""
    is_wrong = (predictor(mel) > VOICED_HZ) != (amid_silence(teacher, mel) > VOICED_HZ)
    edge, inner = is_wrong[:, [0, -1]], is_wrong[:, F0_CONTEXT:-F0_CONTEXT]
    return (
        f"{edge.float().mean():.1%} of outermost frames, {inner.float().mean():.2%} of inner ones"
    )


def main(n_steps: int = 1500, n_segments: int = 24) -> None:
    torch.set_num_threads(1)
    kept, held_out = [], []
    for voice in corpus.voices():
        spoken = [u for u in corpus.read(voice) if u.split == "train"][:N_UTTERANCES]
        mels = [flow_mel(torch.from_numpy(u.samples())).T for u in spoken]
        mels = [mel for mel in mels if mel.shape[1] >= N_FRAMES]
        held_out += mels[: min(N_HELD_OUT, len(mels) // 4)]
        kept += mels[min(N_HELD_OUT, len(mels) // 4) :]
    teacher = shipped().f0_predictor
    predictor, sample = copy.deepcopy(teacher).requires_grad_(True), draw(held_out, 500, 0)
    typer.echo(f"wrongly voiced or not, before: {wrong(predictor, teacher, sample)}")
    schedule = Schedule(
        n_steps, lr=5e-4, warmup=50, max_norm=20.0, weight_decay=0.0, ema_decay=0.98
    )
    train(
        predictor,
        lambda step: losses(predictor, teacher, draw(kept, n_segments, step)),
        schedule,
        FOLDER,
    )
    typer.echo(f"after: {wrong(predictor, teacher, sample)}")


if __name__ == "__main__":
    typer.run(main)
