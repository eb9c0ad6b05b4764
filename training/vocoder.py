"""A small vocoder whose network says what to multiply pulses and noise by.

First it learns the gains and phases of WORLD's analysis (training.world), which needs no waveform
and takes minutes; then the spectra of what is heard, at several resolutions. At last the gains are
made to vary as in speech (global variance compensation). Its pitch predictor learns apart, from the
same analysis.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import cast

import numpy as np
import torch
import torch.nn.functional as F
import typer
from safetensors.torch import load_file
from torch import Tensor, nn

from nightingale.audio.mel import MEL_TOP_HZ, mel_filters
from nightingale.backends.torch.vocoder.model import (
    LAST_SLOPE,
    SLOPE,
    Upsampling,
    Vocoder,
    VocoderConfig,
    excitation,
    sound,
)
from nightingale.backends.torch.vocoder.source import TURN, SourceState
from nightingale.core import SAMPLES_PER_FRAME, SAMPLES_PER_SECOND
from nightingale.weights.config import sized
from nightingale.weights.load import read_config
from nightingale.weights.manifest import BUNDLE
from training import flow_mel, world
from training.loop import Losses, Schedule, load_ema, train
from training.work import work
from training.world import FLOOR, HOP, MAIN_VOICE, N_BINS, PER_FRAME, minimum_phase

CONFIG = VocoderConfig(
    n_channels=384,
    n_f0_channels=192,
    n_harmonics=1,
    stages=((4, 8),),
    kernels=(3, 7),
    source_kernels=(),
    dilations=(1, 3),
    hop=HOP,
    head="filter",
)
FOLDER, SOUND_FOLDER, PITCH_FOLDER = (work() / name for name in ("gains", "vocoder", "pitch"))
PREFIX = "mel2wav."
N_FRAMES, EDGE = 40, 7  # of a segment, and how many at its ends lack their neighbours
MAIN_VOICE_SHARE = 0.5
FLOW_SHARE = 0.5  # of the first voice's segments
MEL_MEAN, MEL_SPREAD = -6.0, 2.2
N_MEL = CONFIG.n_mels
RESOLUTIONS = (2048, 1024, 512, 256)
MOST_SMOOTHED = 0.2  # quefrencies are multiplied by 5 at most
MAGNITUDE_FLOOR = 1.5e-3  # below it is silence, whose logarithms would outweigh all that is heard


@dataclass(frozen=True, slots=True, eq=False)
class Segments:
    """A place of an utterance; or several, all at the beginning, inside or at the end."""

    mel: Tensor  # (B, 80, M)
    f0: Tensor  # (B, M)
    voiced: Tensor  # (B, M)
    pulses: Tensor  # (B, 241, T), T = 4 M + 1
    noise: Tensor  # (B, 241, T)
    envelope: Tensor  # (B, 241, T)
    samples: Tensor  # (B, M * 480)
    begin: int = 0  # frames with all their neighbours
    end: int = N_FRAMES

    @property
    def inner(self) -> slice:
        return slice(self.begin, self.end)


class Speech:
    """What `training.world` has analysed."""

    def __init__(self) -> None:
        files = sorted(world.FOLDER.glob("*.npz"))
        if not files:
            raise SystemExit("nothing to learn from yet: python -m training.world")
        self._voices = {file.stem: dict(np.load(file)) for file in files}
        self._others = [name for name in self._voices if name != MAIN_VOICE]
        self._flow_mel = np.load(flow_mel.FILE) if flow_mel.FILE.is_file() else None

    def draw(self, n: int, step: int) -> Segments:
        random = np.random.default_rng(step)
        place = ("begin", "end", "inside", "inside")[step % 4]
        rows: list[Segments] = []
        while len(rows) < n:
            is_main = random.random() < MAIN_VOICE_SHARE or not self._others
            voice = self._voices[MAIN_VOICE if is_main else random.choice(self._others)]
            lengths = voice["n_frames"]
            number = int(random.integers(len(lengths)))
            spare = int(lengths[number]) - N_FRAMES
            at = {"begin": 0, "end": spare, "inside": int(random.integers(spare + 1))}[place]
            first = int(lengths[:number].sum()) + at
            fine = PER_FRAME * first + number  # each utterance has one more
            mel = voice["mel"]
            if is_main and self._flow_mel is not None and random.random() < FLOW_SHARE:
                mel = self._flow_mel
            frames = slice(first, first + N_FRAMES)
            bins = slice(fine, fine + PER_FRAME * N_FRAMES + 1)
            heard = slice(first * SAMPLES_PER_FRAME, (first + N_FRAMES) * SAMPLES_PER_FRAME)
            rows.append(
                Segments(
                    torch.from_numpy(mel[frames]).float().T,
                    torch.from_numpy(voice["f0"][frames]).float(),
                    torch.from_numpy(voice["voiced"][frames]),
                    torch.from_numpy(voice["pulses"][bins]).float().T,
                    torch.from_numpy(voice["noise"][bins]).float().T,
                    torch.from_numpy(voice["envelope"][bins]).float().T,
                    torch.from_numpy(voice["samples"][heard]).float() / 32767,
                )
            )
        columns = {
            field.name: torch.stack([getattr(row, field.name) for row in rows])
            for field in fields(Segments)
            if field.name not in ("begin", "end")
        }
        begin, end = 0 if place == "begin" else EDGE, N_FRAMES - (0 if place == "end" else EDGE)
        return Segments(**columns, begin=begin, end=end)


def new_vocoder() -> Vocoder:
    """With an envelope from the first step on: that of the mel, between its bands.

    Two channels carry each band, one of them upside down, since leaky units let one side through;
    the others begin with random features."""
    vocoder = Vocoder(CONFIG)
    n, first, second = 2 * N_MEL, vocoder.conv_pre, cast(Upsampling, vocoder.ups[0])
    last, factor = vocoder.conv_post, second.factor
    kernel = second.weight.shape[2]
    assert first.bias is not None and second.bias is not None and last.bias is not None
    pair = torch.cat((torch.eye(N_MEL), -torch.eye(N_MEL)))  # (160, 80)
    with torch.no_grad():
        first.weight.normal_(std=2 / MEL_SPREAD / first.weight[0].numel() ** 0.5)
        first.bias.normal_(std=0.5).sub_(first.weight.sum((1, 2)) * MEL_MEAN)
        first.weight[:n] = 0
        first.weight[:n, :, first.weight.shape[2] // 2] = pair / MEL_SPREAD
        first.bias[:n] = -MEL_MEAN / MEL_SPREAD * pair.sum(1)
        second.weight.normal_(std=0.7 * (2 * factor / kernel / CONFIG.n_channels) ** 0.5)
        second.bias.zero_()
        between = 1 - ((torch.arange(kernel) + 0.5) / factor - 1).abs()  # linear interpolation
        second.weight[:, :n] = 0
        second.weight[:n, :n] = (pair @ pair.T)[..., None] * between / (1 + SLOPE)
        for block in vocoder.resblocks:
            for conv in cast(nn.ModuleList, block.convs2):
                cast(nn.Conv1d, conv).weight.mul_(0.3)[:n].mul_(0.3)
        last.weight.normal_(std=0.08 / last.weight[0].numel() ** 0.5)
        bands, slope = _bands_of_bins()
        for part, level in ((0, -2.0), (2, -2.5)):
            rows = slice(part * N_BINS, (part + 1) * N_BINS)
            middle = last.weight[rows, :n, last.weight.shape[2] // 2]
            middle += bands @ pair.T * MEL_SPREAD / (1 + LAST_SLOPE)
            last.bias[rows] = MEL_MEAN + slope + level
        last.bias[N_BINS : 2 * N_BINS] = 0
        _init_pitch(vocoder)
    return vocoder


def _bands_of_bins() -> tuple[Tensor, Tensor]:
    """(241, 80): the bands around each bin, and how much weaker it is above the highest one."""
    filters = mel_filters(SAMPLES_PER_SECOND, 4 * SAMPLES_PER_FRAME, N_MEL)
    hertz = torch.linspace(0, SAMPLES_PER_SECOND / 2, filters.shape[1])
    centers = (filters @ hertz / filters.sum(1)).double().numpy()
    bins = np.linspace(0, SAMPLES_PER_SECOND / 2, N_BINS)
    rows = [np.interp(bins, centers, unit) for unit in np.eye(N_MEL)]
    slope = -0.5 * np.maximum(bins - MEL_TOP_HZ, 0) / 1000
    return torch.from_numpy(np.stack(rows, axis=1)).float(), torch.from_numpy(slope).float()


def _init_pitch(vocoder: Vocoder) -> None:
    """Hertz are large numbers; begin among them."""
    predictor = vocoder.f0_predictor
    predictor.classifier.bias.fill_(150.0)
    predictor.classifier.weight.mul_(30.0)
    first = cast(nn.Conv1d, predictor.condnet[0])
    assert first.bias is not None
    first.weight.div_(MEL_SPREAD)
    first.bias.sub_(first.weight.sum((1, 2)) * MEL_MEAN)


def filter_parameters(vocoder: Vocoder, mel: Tensor) -> Tensor:
    """(B, 80, M) -> (B, 723, T): what the filter says, as in `Vocoder.synthesize`."""
    x = vocoder.conv_pre(mel)
    for stage in range(len(vocoder.ups)):
        x = vocoder._stage(stage, x, x)
    return vocoder.conv_post(F.leaky_relu(x, LAST_SLOPE))


def gain_losses(found: Tensor, wanted: Segments) -> Losses:
    """In nepers, and phases in 1 - cos; what is nearly silent counts less."""
    inner = slice(PER_FRAME * wanted.begin, PER_FRAME * wanted.end + 1)
    pulses, noise = wanted.pulses[..., inner], wanted.noise[..., inner]
    phase = minimum_phase(wanted.envelope[..., inner].mT).mT
    a, b, c = found[..., inner].chunk(3, dim=1)
    weight = ((torch.maximum(pulses, noise) - FLOOR - 1) / 5).clamp(0.1, 1)
    voiced = (pulses > FLOOR + 0.1).float()
    off = (a.clamp(min=FLOOR) - pulses).abs() * weight * (1 + voiced) / 2
    return {
        "pulses": off.mean(),
        "noise": ((c.clamp(min=FLOOR) - noise).abs() * weight).mean(),
        "phase": ((1 - (b - phase).cos()) * weight * voiced).mean(),
    }


def weighted_sum(losses: Losses) -> Tensor:
    return 2 * losses["pulses"] + losses["noise"] + losses["phase"]


def cepstrum(x: Tensor) -> Tensor:
    """(..., 241) logarithms of magnitudes -> (..., 241) quefrencies."""
    made: Tensor = torch.fft.rfft(torch.cat((x, x[..., 1:-1].flip(-1)), dim=-1)).real
    return made


@torch.inference_mode()
def variance_gain(vocoder: Vocoder, speech: Iterable[Segments]) -> Tensor:
    """(241,): what each quefrency of the gains is multiplied by, so that it varies as in speech.

    What is learned by regression is a mean: the less mel says of a detail, the smoother it is."""
    learned, wanted = [], []
    for segments in speech:
        inner = slice(PER_FRAME * segments.begin, PER_FRAME * segments.end + 1)
        spoken = segments.pulses[..., inner].mT
        voiced = (spoken > FLOOR + 0.1).any(-1)
        found = filter_parameters(vocoder, segments.mel)[:, :N_BINS, inner].clamp(min=FLOOR).mT
        wanted.append(cepstrum(spoken[voiced]))
        learned.append(cepstrum(found[voiced]))
    ratio = torch.cat(learned).std(0) / torch.cat(wanted).std(0)
    smooth = F.avg_pool1d(F.pad(ratio[None], (4, 4), mode="reflect"), 9, stride=1)[0]
    return 1 / smooth.clamp(MOST_SMOOTHED, 1)


@torch.inference_mode()
def compensate_variance(vocoder: Vocoder, gain: Tensor) -> None:
    """Multiply quefrencies of the pulses' and noise's gains: a product with the last layer."""
    unit = torch.eye(N_BINS)
    quefrencies = cepstrum(unit) * gain
    both = torch.cat((quefrencies, quefrencies[..., 1:-1].flip(-1)), dim=-1)
    matrix = torch.fft.rfft(both).real[:, :N_BINS].T / both.shape[-1]
    last = vocoder.conv_post
    assert last.bias is not None
    for part in (0, 2):
        rows = slice(part * N_BINS, (part + 1) * N_BINS)
        last.weight[rows] = torch.einsum("ij,jkl->ikl", matrix, last.weight[rows])
        last.bias[rows] = matrix @ last.bias[rows]


def source(vocoder: Vocoder, f0: Tensor) -> Tensor:
    """(B, M) -> (B, M * 480, 2)"""
    rows = []
    for row in f0:
        phase = (torch.rand(1) * TURN).long()
        noise = torch.randn(len(row), 1, SAMPLES_PER_FRAME)
        rows.append(vocoder.m_source(row, SourceState(phase, 0), noise)[0])
    return torch.stack(rows)


def spectral_distance(made: Tensor, wanted: Tensor) -> Tensor:
    """Mean over resolutions of the distance of spectra and of their logarithms."""
    total = made.new_zeros(())
    for n_fft in RESOLUTIONS:
        a, b = (_magnitude(x, n_fft) for x in (made, wanted))
        total = total + ((a - b).norm(dim=(1, 2)) / b.norm(dim=(1, 2)).clamp(min=1.0)).mean()
        total = total + F.l1_loss(
            a.clamp(min=MAGNITUDE_FLOOR).log(), b.clamp(min=MAGNITUDE_FLOOR).log()
        )
    a, b = (_bands() @ _magnitude(x, 1024) for x in (made, wanted))
    return total / len(RESOLUTIONS) + 2 * F.l1_loss(
        a.clamp(min=MAGNITUDE_FLOOR / 5).log(), b.clamp(min=MAGNITUDE_FLOOR / 5).log()
    )


def _magnitude(samples: Tensor, n_fft: int) -> Tensor:
    window = torch.hann_window(n_fft)
    spectrum = torch.stft(samples, n_fft, n_fft // 4, window=window, return_complex=True)
    return torch.view_as_real(spectrum).square().sum(-1).clamp(min=1e-7).sqrt()


@functools.lru_cache(1)
def _bands() -> Tensor:
    return mel_filters(SAMPLES_PER_SECOND, 1024, N_MEL)


def sound_losses(vocoder: Vocoder, segments: Segments) -> Losses:
    """Spectra of what is heard, with the gains of the analysis beside them."""
    f0 = segments.f0 * (1 + 0.003 * torch.randn(len(segments.f0), 1))
    found = filter_parameters(vocoder, segments.mel)
    made = sound(found, excitation(source(vocoder, f0), vocoder.config), vocoder.config)
    inner = slice(SAMPLES_PER_FRAME * segments.begin, SAMPLES_PER_FRAME * segments.end)
    spectra = spectral_distance(made[:, inner], segments.samples[:, inner])
    gains = gain_losses(found, segments)
    return {"loss": 2 * spectra + weighted_sum(gains) / 2, "spectra": spectra, **gains}


def pitch_loss(predictor: nn.Module, segments: Segments) -> Losses:
    """In units of 10 Hz; where unvoiced, it should only go on somehow."""
    off = (predictor(segments.mel) - segments.f0).abs()[:, segments.inner]
    weight = torch.where(segments.voiced, 1.0, 0.1)[:, segments.inner]
    return {"loss": ((off / 10).clamp(max=20) * weight).sum() / weight.sum()}


def train_gains(
    n_steps: int = 5200, minutes: float | None = None, n_segments: int = 8, ship: bool = False
) -> None:
    """Learn WORLD's gains and phases; --ship: begin with the weights of the package."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    speech, vocoder = Speech(), (shipped().requires_grad_(True) if ship else new_vocoder())
    vocoder.f0_predictor.requires_grad_(False)

    def losses(step: int) -> Losses:
        segments = speech.draw(n_segments, step)
        found = gain_losses(filter_parameters(vocoder, segments.mel), segments)
        return {"loss": weighted_sum(found), **found}

    schedule = Schedule(n_steps, lr=1e-3, warmup=30, max_norm=2.0, weight_decay=0.0, ema_decay=0.99)
    train(vocoder, losses, schedule, FOLDER, minutes)


def train_sound(n_steps: int = 1000, minutes: float | None = None, n_segments: int = 8) -> None:
    """Go on with spectra of the sound."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    speech, vocoder = Speech(), Vocoder(CONFIG)
    vocoder.load_state_dict(load_file(FOLDER / "mean.safetensors"))
    vocoder.f0_predictor.requires_grad_(False)
    schedule = Schedule(
        n_steps,
        lr=4e-4,
        warmup=30,
        max_norm=10.0,
        weight_decay=0.0,
        ema_decay=0.99,
        checkpoint_every=100,
    )
    train(
        vocoder,
        lambda step: sound_losses(vocoder, speech.draw(n_segments, step)),
        schedule,
        SOUND_FOLDER,
        minutes,
    )


def train_pitch(n_steps: int = 3000, n_segments: int = 24, n_drawn: int = 400) -> None:
    """The pitch predictor, on batches that are drawn once."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    speech, predictor = Speech(), new_vocoder().f0_predictor
    drawn = [speech.draw(n_segments, step) for step in range(n_drawn)]
    schedule = Schedule(n_steps, lr=1e-3, warmup=50, max_norm=5.0, weight_decay=0.0, ema_decay=0.99)
    held_out, kept = drawn[: n_drawn // 20], drawn[n_drawn // 20 :]
    train(
        predictor,
        lambda step: pitch_loss(predictor, kept[step % len(kept)]),
        schedule,
        PITCH_FOLDER,
    )
    with torch.no_grad():
        off = [(predictor(s.mel) - s.f0).abs()[:, s.inner][s.voiced[:, s.inner]] for s in held_out]
    typer.echo(f"off by {torch.cat(off).mean():.1f} Hz, median {torch.cat(off).median():.1f}")


def load() -> Vocoder:
    """What was learned last."""
    vocoder = Vocoder(CONFIG)
    load_ema(vocoder, SOUND_FOLDER)
    load_ema(vocoder.f0_predictor, PITCH_FOLDER)
    speech = Speech()
    drawn = (speech.draw(8, step) for step in range(40))
    compensate_variance(vocoder, variance_gain(vocoder, drawn))
    return vocoder


def shipped() -> Vocoder:
    """That of the package."""
    file = BUNDLE / "s3gen.safetensors"
    vocoder = Vocoder(sized(VocoderConfig(), read_config(file)["mel2wav"]))
    vocoder.load_state_dict(
        {k.removeprefix(PREFIX): v.float() for k, v in load_file(file).items() if PREFIX in k}
    )
    return vocoder.eval().requires_grad_(False)


if __name__ == "__main__":
    app = typer.Typer()
    app.command("gains")(train_gains)
    app.command("sound")(train_sound)
    app.command("pitch")(train_pitch)
    app()
