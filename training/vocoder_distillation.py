"""Distill Kokoro's generator into Fledgling's vocoder, stage by stage.

The first stage reads mel in place of Kokoro's features and learns what the teacher's first stage
makes. The second one, a third as large as the teacher's, learns what that makes of the same input:
of the teacher's first stage in half of the rows, of the student's own in the others, which is
smoother. All learn in every step. Not shipped: how far it came is in docs/log.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
import torch.nn.functional as F
import typer
from torch import Tensor

from nightingale.audio.mel import flow_mel
from nightingale.backends.torch.vocoder.model import (
    LAST_SLOPE,
    SLOPE,
    Upsampling,
    Vocoder,
    VocoderConfig,
    sound,
)
from nightingale.backends.torch.vocoder.source import SourceState, draw_noise
from nightingale.backends.torch.vocoder.stft import stft
from nightingale.core import SAMPLES_PER_FRAME, SAMPLES_PER_SECOND
from nightingale.measure.sound import SoundJudge
from training import corpus, generator, pitch
from training.generator import HOP, KERNELS, Generator, Moments, Taught
from training.loop import Losses, Schedule, load_ema, train
from training.vocoder import spectral_distance
from training.work import work

CONFIG = VocoderConfig(
    n_channels=512,
    n_f0_channels=128,
    stages=((16, 48), (6, 12)),
    kernels=(7,),
    source_kernels=(3, 3),
    hop=HOP,
)
FOLDER = work() / "vocoder_distilled"
OTHERS = "am_michael", "bf_emma", "af_bella", "bm_george"
N_FRAMES = 25
EDGE = 4  # frames that lack their neighbours
INNER = slice(EDGE * SAMPLES_PER_FRAME, -EDGE * SAMPLES_PER_FRAME)
N_FFT = 512
LOW, HIGH = (16, 0), (96, 1)  # positions of each stage in a frame, and how many more at the end
RATES = {
    "mel": (1, 0),
    "source": (SAMPLES_PER_FRAME, 0),
    "samples": (SAMPLES_PER_FRAME, 0),
    "inputs": LOW,
    "branch0": LOW,
    "branch1": HIGH,
    "stage0": LOW,
}
LAST_BIAS = f"convs2.{len(CONFIG.dilations) - 1}.bias"


@dataclass(frozen=True, slots=True, eq=False)
class Student:
    """The vocoder, and what its source branches add so that its blocks need no offset."""

    vocoder: Vocoder
    offsets: tuple[Tensor, Tensor]


@torch.no_grad()
def begin(teacher: Generator, moments: Moments) -> Student:
    """With the teacher's weights as far as they fit, and the pitch predictor that ships."""
    vocoder = Vocoder(CONFIG)
    (kernel,) = CONFIG.kernels
    weights, tensors, offsets = teacher.weights, vocoder.state_dict(), []
    for stage, source_kernel in enumerate(CONFIG.source_kernels):
        name = f"resblocks.{len(KERNELS) * stage + KERNELS.index(kernel)}"
        block, offset = generator.folded(teacher, moments, name, kernel)
        wide = generator.SOURCE_KERNELS[stage]
        branch, first = generator.folded(teacher, moments, f"noise_res.{stage}", wide)
        narrow = {key: middle(x, source_kernel) for key, x in branch.state_dict().items()}
        narrow[LAST_BIAS] = narrow[LAST_BIAS] + offset
        tensors |= {f"resblocks.{stage}.{key}": x for key, x in block.state_dict().items()}
        tensors |= {f"source_resblocks.{stage}.{key}": x for key, x in narrow.items()}
        tensors[f"source_downs.{stage}.bias"] = weights[f"noise_convs.{stage}.bias"] + first
        offsets.append(offset)
    for part in ("ups.1", "conv_post"):
        tensors |= {f"{part}.{key}": weights[f"{part}.{key}"] for key in ("weight", "bias")}
    tensors["m_source.l_linear.weight"] = weights["m_source.l_linear.weight"].T
    tensors["m_source.l_linear.bias"] = weights["m_source.l_linear.bias"]
    tensors |= {
        f"f0_predictor.{k}": x for k, x in pitch.shipped().f0_predictor.state_dict().items()
    }
    vocoder.load_state_dict(tensors)
    vocoder.f0_predictor.requires_grad_(False)
    return Student(vocoder, (offsets[0], offsets[1]))


def middle(weight: Tensor, kernel: int) -> Tensor:
    """The taps in the middle of a convolution's; other tensors as they are."""
    if weight.dim() < 3:
        return weight
    cut = (weight.shape[2] - kernel) // 2
    return weight[:, :, cut : cut + kernel]


@torch.no_grad()
def normalize_inputs(vocoder: Vocoder, taught: list[Taught]) -> None:
    """Let the first layer read bands of mean 0 and spread 1, and the second begin at the mean."""
    mel = torch.cat([t.mel.float() for t in taught], dim=1)
    wanted = torch.cat([t.inputs.float() for t in taught], dim=1)
    first, second = vocoder.conv_pre, cast(Upsampling, vocoder.ups[0])
    assert first.bias is not None and second.bias is not None
    first.weight.normal_().div_(first.weight[0].numel() ** 0.5).div_(mel.std(1)[:, None] + 0.1)
    first.bias.normal_(std=0.5).sub_((first.weight * mel.mean(1)[:, None]).sum((1, 2)))
    second.weight.normal_(std=0.02)
    second.bias.copy_(wanted.mean(1))


class Targets:
    """Random places of what was taught, and how much each channel varies."""

    def __init__(self, taught: list[Taught]) -> None:
        self._taught = [t for t in taught if t.mel.shape[1] >= N_FRAMES]
        some = self._taught[:40]
        self.inputs = _spread([t.inputs.float() + t.branch0.float() for t in some])
        self.stage0 = _spread([t.stage0 for t in some])

    def draw(self, n: int, step: int) -> Taught:
        random = np.random.default_rng(step)
        rows: dict[str, list[Tensor]] = {name: [] for name in RATES}
        for number in random.integers(len(self._taught), size=n):
            taught = self._taught[number]
            at = int(random.integers(taught.mel.shape[1] - N_FRAMES + 1))
            for name, (rate, more) in RATES.items():
                cut = slice(at * rate, (at + N_FRAMES) * rate + more)
                rows[name].append(getattr(taught, name)[..., cut].float())
        return Taught(**{name: torch.stack(tensors) for name, tensors in rows.items()})


def _spread(rows: list[Tensor]) -> Tensor:
    return torch.cat([row[:, ::4].float() for row in rows], dim=1).std(1)[:, None] + 1e-2


def losses(student: Student, teacher: Generator, targets: Targets, wanted: Taught) -> Losses:
    """Squared errors in units of each channel's variance."""
    vocoder, (low, high) = student.vocoder, student.offsets
    spectra = stft(wanted.source, HOP)
    inputs = vocoder.ups[0](F.leaky_relu(vocoder.conv_pre(wanted.mel), SLOPE))
    branch0, branch1 = (
        vocoder.source_resblocks[stage](vocoder.source_downs[stage](spectra)) - offset[:, None]
        for stage, offset in enumerate(student.offsets)
    )
    own = vocoder.resblocks[0](inputs + branch0 + low[:, None])
    with torch.no_grad():
        n = len(own) // 2
        up = teacher.up(torch.cat((wanted.stage0[:n], own[n:]))) + wanted.branch1
        target = teacher.stage(1, up)
        scale = target.std(dim=(0, 2))[:, None] + 1e-2
    stage1 = vocoder.resblocks[1](up + high[:, None])
    made, meant = _last(vocoder, stage1), _last(vocoder, target)
    found = {
        "inputs": _error((inputs - wanted.inputs) / targets.inputs, LOW),
        "branch0": _share(branch0, wanted.branch0, LOW),
        "branch1": _share(branch1, wanted.branch1, HIGH),
        "stage0": _error((own - wanted.stage0) / targets.stage0, LOW),
        "stage1": _error((stage1 - target) / scale, HIGH),
        "last": 5 * _error(made - meant, HIGH),
        "sound": sound_distance(sound(made, HOP)[:, INNER], sound(meant, HOP)[:, INNER]),
    }
    return {"loss": torch.stack(list(found.values())).sum(), **found}


def sound_distance(made: Tensor, meant: Tensor) -> Tensor:
    """Of spectra, and of waveforms, since both have the same source and so the same phases."""
    a, b = (torch.view_as_real(_spectrum(x)).flatten(1) for x in (made, meant))
    return (
        0.5 * spectral_distance(made, meant)
        + ((a - b).norm(dim=1) / b.norm(dim=1).clamp(min=0.1)).mean()
    )


def _spectrum(samples: Tensor) -> Tensor:
    window = torch.hann_window(N_FFT)
    return torch.stft(samples, N_FFT, N_FFT // 4, window=window, return_complex=True)


def _last(vocoder: Vocoder, x: Tensor) -> Tensor:
    return vocoder.conv_post(F.leaky_relu(x, LAST_SLOPE))


def _error(off: Tensor, rate: tuple[int, int]) -> Tensor:
    return off[..., EDGE * rate[0] : -EDGE * rate[0]].square().mean()


def _share(found: Tensor, wanted: Tensor, rate: tuple[int, int]) -> Tensor:
    return _error(found - wanted, rate) / wanted.var(dim=2).mean()


def main(n_steps: int = 1000, minutes: float | None = None, n_segments: int = 4) -> None:
    torch.set_num_threads(1)
    taught = [generator.read_taught(file) for file in generator.kept()]
    if not taught:
        raise SystemExit("nothing to learn from yet: python -m training.generator")
    teacher, moments = generator.load(work() / "assets", generator.Features(work() / "assets"))
    student, targets = begin(teacher, moments), Targets(taught)
    normalize_inputs(student.vocoder, taught[:40])

    def losses_at(step: int) -> Losses:
        return losses(student, teacher, targets, targets.draw(n_segments, step))

    schedule = Schedule(
        n_steps,
        lr=8e-4,
        warmup=50,
        max_norm=5.0,
        weight_decay=0.0,
        ema_decay=0.99,
        checkpoint_every=100,
    )
    train(student.vocoder, losses_at, schedule, FOLDER, minutes)


@torch.inference_mode()
def judge(n: int = 8) -> None:
    """DistillMOS of the last n training clips of the first voice and the last one of four others:
    as spoken, and from their mel by the vocoder that ships, by what was distilled, and by its first
    stage with the teacher's second one behind it."""
    torch.set_num_threads(1)
    if not (FOLDER / "mean.safetensors").is_file():
        raise SystemExit(f"nothing in {FOLDER} yet: python -m training.vocoder_distillation train")
    rate, shipped = SoundJudge(work() / "assets").rate, pitch.shipped()
    teacher, _ = generator.load(work() / "assets", generator.Features(work() / "assets"))
    vocoder = Vocoder(CONFIG)
    load_ema(vocoder, FOLDER)
    ways: dict[str, Callable[[Tensor, int], Tensor]] = {
        "shipped": shipped.vocode,
        "distilled": vocoder.vocode,
        "first stage": lambda mel, seed: beside_teacher(vocoder, teacher, mel, seed),
    }
    spoken = [u for u in corpus.read("heart") if u.split == "train"][-n:]
    for group in (spoken, [corpus.read(voice)[-1] for voice in OTHERS]):
        rows = []
        for seed, utterance in enumerate(group):
            mel = flow_mel(torch.from_numpy(utterance.samples())).T
            made = [way(mel, seed).numpy() for way in ways.values()]
            rows.append([rate(x, SAMPLES_PER_SECOND) for x in (utterance.samples(), *made)])
        means = zip(("as spoken", *ways), np.mean(rows, axis=0), strict=True)
        typer.echo(f"{len(group)} clips: " + ", ".join(f"{k} {mean:.2f}" for k, mean in means))


def beside_teacher(vocoder: Vocoder, teacher: Generator, mel: Tensor, seed: int) -> Tensor:
    """The first stage of the one, the second of the other."""
    n, n_harmonics = mel.shape[1], CONFIG.n_harmonics
    noise = draw_noise(seed, 0, n, n_harmonics, SAMPLES_PER_FRAME)
    start = SourceState.start(seed, n_harmonics)
    source, _ = vocoder.source(vocoder.f0(mel), start, noise)
    x = vocoder.ups[0](F.leaky_relu(vocoder.conv_pre(mel[None]), SLOPE))
    x = x + vocoder.source_resblocks[0](vocoder.source_downs[0](stft(source[None], HOP)))
    x = teacher.up(vocoder.resblocks[0](x)) + teacher.branch(1, generator.spectrum_of(source))
    return teacher.last(teacher.stage(1, x))[0]


if __name__ == "__main__":
    app = typer.Typer()
    app.command("train")(main)
    app.command("judge")(judge)
    app()
