"""The vocoder's pitch predictor, taught the teacher's own pitch: `python -m training.pitch`.

The first one learned from a pitch tracker, which calls a sixth of the voiced frames unvoiced; there
the vocoder was given noise to make a voice of. The fast teacher's network says its pitch, a filter
for sines at that pitch, and all else that is heard: a frame is voiced if the sines are heard in it.
Part of the utterances are bent to other voices. Minutes, on one core. The filter stays as it is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import typer
from numpy.typing import NDArray
from rich.progress import track
from safetensors.torch import load_file
from torch import Tensor, nn

from nightingale.audio.mel import flow_mel
from nightingale.backends.torch.vocoder.model import F0_CONTEXT, Vocoder
from nightingale.backends.torch.vocoder.source import TURN, SourceState, advance
from nightingale.core import SAMPLES_PER_FRAME
from nightingale.weights.manifest import BUNDLE
from training.clips import BadClipError
from training.loop import Losses, Plan, train
from training.recite import Description, Voice
from training.texts import read
from training.vocoder import CONFIG, VOICED_HZ, pitch_distance
from training.work import work

FILE, FOLDER = work() / "pitch.npz", work() / "pitch"
N_FRAMES = 48
HOP = 300  # samples of a frame of the teacher
TEACHER_VOICED_HZ = 40.0
LOWEST_HZ, HIGHEST_HZ = 60.0, 11_000.0  # of a harmonic
VOICED_SHARE = 0.1  # of a frame's power that the sines must have
PEAK = 0.95
SILENT = -14.0  # logarithm of a magnitude
N_OWN, N_BENT = 600, 450  # utterances
HELD_OUT = 20  # every so many utterances one is not learned from
PREFIX = "mel2wav."

Samples = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Rendering:
    """An utterance of M frames: sounds, (M * 480,)."""

    sines: Samples
    rest: Samples

    @property
    def share(self) -> Samples:
        """Of each frame's power that the sines have, (M,)."""
        frames = (x.reshape(-1, SAMPLES_PER_FRAME) for x in (self.sines, self.rest))
        sines, rest = (np.square(x).mean(1) for x in frames)
        share: Samples = sines / (sines + rest + np.float32(1e-8))
        return share


def bend(said: Description, pitch: float, formants: float) -> Description:
    """Another voice: its pitch and the scale of its spectra are multiplied."""
    n = len(said.sines)
    at = np.arange(n) / formants
    below, above = (np.minimum(at.astype(int) + k, n - 1) for k in (0, 1))
    nearest = np.minimum(np.rint(at).astype(int), n - 1)
    part = (at - below)[:, None].astype(np.float32)

    def level(x: Samples) -> Samples:
        between = x[below] * (1 - part) + x[above] * part
        return np.where(at[:, None] < n, between, SILENT).astype(np.float32)

    return Description(
        level(said.sines), said.turn[nearest], level(said.noise), level(said.rest),
        said.rest_phase[nearest], said.f0 * np.float32(pitch),
    )  # fmt: skip


def draw_bend(random: np.random.Generator) -> tuple[float, float]:
    """Pitch and formants of another voice: lower ones more often, for the teacher's is high."""
    if random.random() < 0.6:
        return random.uniform(0.42, 0.7), random.uniform(0.8, 0.95)
    return random.uniform(0.75, 1.2), random.uniform(0.9, 1.12)


def pitch_of(said: Description) -> Samples:
    """Of each of our frames, 50 a second; the teacher has 80."""
    n = len(said.f0)
    at = (np.arange(n * HOP // SAMPLES_PER_FRAME) + 0.5) * SAMPLES_PER_FRAME / HOP - 0.5
    is_voiced = (said.f0 > TEACHER_VOICED_HZ)[np.clip(np.rint(at).astype(int), 0, n - 1)]
    f0 = np.interp(at, np.arange(n), said.f0)
    return np.where(is_voiced, np.maximum(f0, LOWEST_HZ), 0).astype(np.float32)


def render(said: Description, f0: Samples, random: np.random.Generator) -> Rendering:
    """The sound of a description with harmonics at this pitch, which begin at random phases."""
    from hibari import dsp

    n_frames, n = said.sines.shape[1], len(f0) * SAMPLES_PER_FRAME
    sines = np.pad(harmonics(torch.from_numpy(f0), random), (0, n_frames * HOP - n))
    turned = np.exp(1j * np.pi * np.tanh(said.turn))
    spectrum = dsp.stft(sines, n_frames) * dsp.ex(said.sines) * turned
    noise = random.standard_normal((2, *said.noise.shape), dtype=np.float32)
    rest = (noise[0] + 1j * noise[1]) * dsp.ex(said.noise)
    rest = rest + dsp.ex(said.rest) * np.exp(1j * said.rest_phase)
    sounds = [dsp.ola(x.astype(np.complex64))[:n] for x in (spectrum, rest)]
    return Rendering(sounds[0], sounds[1])


def harmonics(f0: Tensor, random: np.random.Generator) -> Samples:
    """All that are audible, of one level, (M,) -> (M * 480,)."""
    if not f0.any():
        return np.zeros(len(f0) * SAMPLES_PER_FRAME, np.float32)
    n = math.ceil(HIGHEST_HZ / max(LOWEST_HZ, float(f0[f0 > 0].min())))
    phase = SourceState.at(torch.from_numpy(random.random(n))).phase
    rows = []
    number = torch.arange(1, n + 1)
    for frame in f0[:, None]:  # one at a time: a hundred harmonics of an utterance are large
        if not frame:
            rows.append(torch.zeros(SAMPLES_PER_FRAME))
            continue
        turns, phase = advance(frame, phase, SAMPLES_PER_FRAME)  # (1, H, 480)
        is_audible = frame * number < HIGHEST_HZ
        sines = torch.sin(turns[0, is_audible].float() * (2 * math.pi / TURN))
        rows.append(sines.sum(0))
    wave: Samples = torch.cat(rows).numpy()
    return wave


def speak(n_own: int, n_bent: int, out: Path) -> None:
    """Let the teacher speak, and keep mel and pitch."""
    voice, random = Voice(work() / "assets"), np.random.default_rng(1)
    texts = [t.text for t in read(work() / "texts" / "sentences.jsonl") if t.split == "train"]
    mels, pitches = [], []
    for number, text in enumerate(track(texts[: n_own + n_bent], "pitch")):
        try:
            said = voice.describe(voice.phonemes(text)[0], random.uniform(0.9, 1.1))
        except BadClipError:
            continue
        if number >= n_own:
            said = bend(said, *draw_bend(random))
        f0 = pitch_of(said)
        f0 = np.where(render(said, f0, random).share > VOICED_SHARE, f0, np.float32(0))
        made = render(said, f0, random)
        whole = made.sines + made.rest
        whole *= np.float32(min(1.0, PEAK / float(np.abs(whole).max())))
        mels.append(flow_mel(torch.from_numpy(whole)).numpy().astype(np.float16))
        pitches.append(f0)
    n_frames = np.array([len(f0) for f0 in pitches])
    np.savez(out, mel=np.concatenate(mels), f0=np.concatenate(pitches), n_frames=n_frames)


class Pieces:
    """What the teacher spoke, by pieces of N_FRAMES frames."""

    def __init__(self, file: Path, *, held_out: bool) -> None:
        with np.load(file) as arrays:
            self._mel, self._f0, n_frames = arrays["mel"], arrays["f0"], arrays["n_frames"]
        starts = np.cumsum(n_frames) - n_frames
        counts = np.maximum(0, n_frames - N_FRAMES + 1)
        chosen = (np.arange(len(starts)) % HELD_OUT == 0) == held_out
        self._places = np.concatenate(
            [at + np.arange(n) for at, n in zip(starts[chosen], counts[chosen], strict=True)]
        )

    def draw(self, n: int, step: int) -> tuple[Tensor, Tensor]:
        """mel (B, 80, N) and pitch (B, N) of random places."""
        at = np.random.default_rng(step).choice(self._places, n)[:, None] + np.arange(N_FRAMES)
        mel = torch.from_numpy(self._mel[at].astype(np.float32)).mT
        return mel, torch.from_numpy(self._f0[at])


def start() -> Vocoder:
    """The vocoder that ships."""
    tensors, net = load_file(BUNDLE / "s3gen.safetensors"), Vocoder(CONFIG)
    net.load_state_dict(
        {k.removeprefix(PREFIX): v.float() for k, v in tensors.items() if k.startswith(PREFIX)}
    )
    return net


def loss(predictor: nn.Module, mel: Tensor, pitch: Tensor) -> Losses:
    inner = slice(F0_CONTEXT, -F0_CONTEXT)
    return {"loss": pitch_distance(predictor(mel)[:, inner], pitch[:, inner])}


@torch.inference_mode()
def voicing(predictor: nn.Module, mel: Tensor, pitch: Tensor) -> str:
    inner = slice(F0_CONTEXT, -F0_CONTEXT)
    found, wanted = predictor(mel)[:, inner], pitch[:, inner]
    heard, is_voiced = found > VOICED_HZ, wanted > VOICED_HZ
    missed, added = ((is_voiced & ~heard).float().mean(), (heard & ~is_voiced).float().mean())
    off = (found - wanted).abs()[heard & is_voiced].median()
    return f"voiced frames missed {missed:.1%}, added {added:.1%}, off by {off:.1f} Hz (median)"


def main(n_steps: int = 1200, n_pieces: int = 24, n_own: int = N_OWN, n_bent: int = N_BENT) -> None:
    torch.set_num_threads(1)
    if not FILE.is_file():
        speak(n_own, n_bent, FILE)
    predictor, pieces = start().f0_predictor, Pieces(FILE, held_out=False)
    sample = Pieces(FILE, held_out=True).draw(400, 0)
    typer.echo(f"ships: {voicing(predictor, *sample)}")
    plan = Plan(n_steps, rate=1e-3, warmup=1, clip=20.0, decay=0.0, average=0.98)
    train(predictor, lambda step: loss(predictor, *pieces.draw(n_pieces, step)), plan, FOLDER)
    typer.echo(f"now: {voicing(predictor, *sample)}")


if __name__ == "__main__":
    typer.run(main)
