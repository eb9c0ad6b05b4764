"""A small HiFT vocoder: multi-resolution spectral losses, then adversarial training.

The source signal has the measured pitch, so spectral distances at several resolutions are enough to
begin with; a discriminator of recorded and generated speech then makes it sound natural. The pitch
(f0) predictor is trained beside it.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
import typer
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch import Tensor, nn

from nightingale.audio.mel import mel_filters
from nightingale.backends.torch.vocoder.model import Vocoder, VocoderConfig
from nightingale.backends.torch.vocoder.source import SourceState
from nightingale.core import SAMPLES_PER_FRAME
from training import corpus
from training.corpus import FLOW_MEL, PITCH, Utterance
from training.discriminator import (
    HAS_BF16,
    MAGNITUDE_FLOOR,
    Discriminator,
    adversarial_loss,
    discriminator_loss,
    feature_matching_loss,
)
from training.loop import Losses, Schedule, compile_blocks, load_ema, train
from training.work import work

Array = NDArray[np.floating[Any]]
CONFIG = VocoderConfig(
    n_channels=160,
    n_f0_channels=128,
    n_harmonics=32,  # so small a network cannot add overtones; so the source has them all
    kernels=(3, 7),
    dilations=(1, 3),
    source_kernels=(7, 5, 3),
)
FOLDER = work() / "vocoder"
GAN_FOLDER = work() / "vocoder_gan"
N_FRAMES = 32
RESOLUTIONS = (2048, 1024, 512, 256, 128)
VOICED_HZ = 10.0
INNER = slice(2 * SAMPLES_PER_FRAME, -2 * SAMPLES_PER_FRAME)  # edges lack their neighbours


def sample_segments(
    utterances: list[Utterance], n: int, step: int
) -> tuple[Tensor, Tensor, Tensor]:
    """mel (B, 80, M), pitch (B, M) and samples (B, M * 480) of random places."""
    random = np.random.default_rng(step)
    mels: list[Array] = []
    pitches: list[Array] = []
    samples: list[Array] = []
    while len(mels) < n:
        utterance = utterances[random.integers(len(utterances))]
        n_frames = 2 * utterance.n_tokens
        if n_frames < N_FRAMES:
            continue
        at = random.integers(n_frames - N_FRAMES + 1)
        here = slice(at, at + N_FRAMES)
        mels.append(FLOW_MEL.of(utterance)[here].T)
        pitches.append(PITCH.of(utterance)[here, 0])
        samples.append(
            utterance.samples()[at * SAMPLES_PER_FRAME : (at + N_FRAMES) * SAMPLES_PER_FRAME]
        )
    as_tensor = [torch.from_numpy(np.stack(rows)).float() for rows in (mels, pitches, samples)]
    return as_tensor[0], as_tensor[1], as_tensor[2]


def excitation(vocoder: Vocoder, pitch: Tensor) -> Tensor:
    """(B, M) -> (B, M * 480)"""
    n_harmonics = vocoder.config.n_harmonics
    rows = []
    for row in pitch:
        noise = torch.randn(len(row), n_harmonics, SAMPLES_PER_FRAME)
        turns = torch.rand(n_harmonics)
        turns[0] = torch.rand(())  # a piece begins anywhere in a period
        rows.append(vocoder.source(row, SourceState.at(turns), noise)[0])
    return torch.stack(rows)


def losses(vocoder: Vocoder, utterances: list[Utterance], n_segments: int, step: int) -> Losses:
    mel, pitch, samples = sample_segments(utterances, n_segments, step)
    made = vocoder.synthesize(mel, excitation(vocoder, pitch))
    spectra = spectral_distance(made[:, INNER], samples[:, INNER])
    guessed = vocoder.f0_predictor(mel)
    pitch_loss = pitch_distance(guessed[:, 5:-5], pitch[:, 5:-5])
    return {"loss": spectra + 0.02 * pitch_loss, "spectra": spectra, "pitch": pitch_loss}


def pitch_distance(guessed: Tensor, pitch: Tensor) -> Tensor:
    """In units of 10 Hz; where unvoiced, all that counts is to stay below the threshold."""
    voiced = pitch > VOICED_HZ
    off = (guessed - pitch).abs() / 10
    return torch.where(voiced, off, (guessed / 10).clamp(max=40)).mean()


def spectral_distance(made: Tensor, wanted: Tensor) -> Tensor:
    """Mean over resolutions of the distance of spectra and of their logarithms."""
    total = made.new_zeros(())
    for n_fft in RESOLUTIONS:
        a, b = (_magnitude(x, n_fft) for x in (made, wanted))
        total = total + ((a - b).norm(dim=(1, 2)) / b.norm(dim=(1, 2)).clamp(min=1.0)).mean()
        total = total + F.l1_loss(
            a.clamp(min=MAGNITUDE_FLOOR).log(), b.clamp(min=MAGNITUDE_FLOOR).log()
        )
    bands = _bands()
    a, b = (bands @ _magnitude(x, 1024) for x in (made, wanted))
    return total / len(RESOLUTIONS) + 2 * F.l1_loss(
        a.clamp(min=MAGNITUDE_FLOOR / 5).log(), b.clamp(min=MAGNITUDE_FLOOR / 5).log()
    )


def _magnitude(samples: Tensor, n_fft: int) -> Tensor:
    window = torch.hann_window(n_fft)
    spectrum = torch.stft(samples, n_fft, n_fft // 4, window=window, return_complex=True)
    return torch.view_as_real(spectrum).square().sum(-1).clamp(min=1e-7).sqrt()


@functools.lru_cache(1)
def _bands() -> Tensor:
    return mel_filters(24_000, 1024, 80)


class VocoderGAN(nn.Module):
    """A vocoder and its discriminator: each learns from what the other does."""

    def __init__(self, vocoder: Vocoder) -> None:
        super().__init__()
        self.vocoder, self.discriminator = vocoder, Discriminator()

    def losses(self, utterances: list[Utterance], n_segments: int, step: int) -> Losses:
        mel, pitch, samples = sample_segments(utterances, n_segments, step)
        source = excitation(self.vocoder, pitch)
        with torch.autocast("cpu", torch.bfloat16, enabled=HAS_BF16):
            made = self.vocoder.synthesize(mel, source).float()
        spectra = spectral_distance(made[:, INNER], samples[:, INNER])
        pitch_loss = pitch_distance(self.vocoder.f0_predictor(mel)[:, 5:-5], pitch[:, 5:-5])
        spoken = self.discriminator(samples[:, INNER])
        discriminator = discriminator_loss(spoken, self.discriminator(made[:, INNER].detach()))
        seen = self.discriminator.frozen(made[:, INNER])
        real, like = adversarial_loss(seen), feature_matching_loss(spoken, seen)
        total = 4 * spectra + real + 4 * like + 0.02 * pitch_loss + discriminator
        shown = {"spectra": spectra, "real": real, "like": like, "discriminator": discriminator}
        return {"loss": total, **shown, "pitch": pitch_loss}


def train_gan(
    n_steps: int = 6000, minutes: float | None = None, threads: int = 1, n_segments: int = 8
) -> None:
    """Go on with a discriminator, from what `train` has learned."""
    torch.set_num_threads(threads)
    utterances = corpus.evenly(corpus.training_set(FLOW_MEL, PITCH))
    gan = VocoderGAN(Vocoder(CONFIG))
    gan.vocoder.load_state_dict(load_file(FOLDER / "mean.safetensors"))
    compile_blocks([*gan.vocoder.resblocks, *gan.vocoder.source_resblocks])
    schedule = Schedule(
        n_steps, lr=6e-4, warmup=100, max_norm=20.0, weight_decay=0.0, ema_decay=0.995
    )
    train(gan, lambda step: gan.losses(utterances, n_segments, step), schedule, GAN_FOLDER, minutes)


def load() -> Vocoder:
    """What was learned last."""
    vocoder = Vocoder(CONFIG)
    if not (GAN_FOLDER / "mean.safetensors").is_file():
        load_ema(vocoder, FOLDER)
        return vocoder
    gan = VocoderGAN(vocoder)
    load_ema(gan, GAN_FOLDER)
    return gan.vocoder


def main(
    n_steps: int = 1500, minutes: float | None = None, threads: int = 1, n_segments: int = 12
) -> None:
    torch.set_num_threads(threads)
    utterances = corpus.evenly(corpus.training_set(FLOW_MEL, PITCH))
    vocoder = Vocoder(CONFIG)
    with torch.no_grad():  # hertz are large numbers; begin among them
        vocoder.f0_predictor.classifier.bias.fill_(150.0)
        vocoder.f0_predictor.classifier.weight.mul_(30.0)
        vocoder.m_source.l_linear.weight.fill_(0.5)
    compile_blocks([*vocoder.resblocks, *vocoder.source_resblocks])
    schedule = Schedule(n_steps, lr=1e-3, max_norm=5.0, weight_decay=0.0)
    train(
        vocoder,
        lambda step: losses(vocoder, utterances, n_segments, step),
        schedule,
        FOLDER,
        minutes,
    )


if __name__ == "__main__":
    app = typer.Typer()
    app.command("train")(main)
    app.command("gan")(train_gan)
    app()
