"""Kokoro's generator as a plain convolutional filter: the teacher of Fledgling's vocoder.

Kokoro's last stage is a HiFT filter too, with the same kinds of layers, but it normalizes each
channel over the whole utterance and scales it by the voice. With constants in place of both (those
of one voice, over a few sentences) it is a filter that can be streamed, and still sounds well for
all voices. Normalizations become parts of the weights around them. It reads features that Kokoro's
decoder makes of phonemes, 80 frames a second; `speak` keeps them beside the sound they make.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
import typer
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor

from nightingale.audio.mel import flow_mel
from nightingale.backends.torch.vocoder.model import LAST_SLOPE, SLOPE, ResidualBlock, sound
from nightingale.backends.torch.vocoder.source import Source, SourceState
from nightingale.core import SAMPLES_PER_FRAME
from training.corpus import HELD_OUT_VOICES
from training.speak import CAST
from training.texts import SEED, read
from training.work import work

WIDTHS, KERNELS, DILATIONS = (256, 128), (3, 7, 11), (1, 3, 5)
SOURCE_KERNELS = (7, 11)
STAGES = ((10, 20), (6, 12))  # upsampling factor, kernel
HOP = 5
FLAT = 20.0  # an offset so many times the scale: the activation hardly moves
FIRST_VOICE = "af_heart"
N_MEASURED = 8  # sentences whose means and spreads are taken
FOLDER = work() / "generator"
MIN_PHONEMES, MAX_PHONEMES = 4, 150
_PLACE = "/decoder/decoder/generator/"
_NAMES = "decoder.decoder.generator."
_FEATURES, _F0 = "/decoder/decoder/decode.3/Div_4_output_0", "/decoder/decoder/Unsqueeze_output_0"

Tensors = dict[str, Tensor]
Moments = dict[str, tuple[Tensor, Tensor]]  # mean and variance of the channels, of each layer


@dataclass(frozen=True, slots=True, eq=False)
class Taught:
    """What the teacher's layers make of one utterance; M mel frames."""

    mel: Tensor  # (80, M), of the samples
    source: Tensor  # (M * 480,)
    samples: Tensor  # (M * 480,)
    inputs: Tensor  # (256, M * 16): what the first stage reads
    branch0: Tensor  # (256, M * 16): what the source adds to it
    branch1: Tensor  # (128, M * 96 + 1)
    stage0: Tensor  # (256, M * 16): what the first stage makes


def read_weights(file: Path) -> Tensors:
    """The generator's out of the whole graph, by the names of their layers."""
    import onnx
    from onnx import numpy_helper

    graph = onnx.load(str(file)).graph
    stored = {tensor.name: tensor for tensor in graph.initializer}

    def tensor(name: str) -> Tensor:
        return torch.from_numpy(numpy_helper.to_array(stored[name]).copy())

    found = {n.removeprefix(_NAMES): tensor(n) for n in stored if n.startswith(_NAMES)}
    for node in graph.node:
        if not node.name.startswith(_PLACE):
            continue
        layer = node.name.removeprefix(_PLACE).rpartition("/")[0].replace("/", ".")
        weights = [name for name in node.input if name in stored]
        if node.op_type in ("Conv", "ConvTranspose") and "istft" not in layer:
            found[f"{layer}.weight"], found[f"{layer}.bias"] = map(tensor, weights)
        if node.op_type == "MatMul" and layer == "m_source.l_linear":
            found["m_source.l_linear.weight"] = tensor(weights[0])
    return found


class Generator:
    """Features, (1, 512, 80 a second), and a source -> samples.

    With `moments` in place of those of the utterance it is what `folded` puts into HiFT's layers.
    """

    def __init__(self, weights: Tensors, style: Tensor, moments: Moments | None = None) -> None:
        self.weights, self._style, self._fixed = weights, style, moments
        self.seen: dict[str, list[Tensor]] = {}

    def affine(self, layer: str) -> tuple[Tensor, Tensor]:
        """What the voice makes of a normalized channel: scale and offset."""
        fc = F.linear(self._style, *self._of(f"{layer}.fc"))[0]
        scale, offset = fc.chunk(2)
        return 1 + scale, offset

    def inputs(self, features: Tensor) -> Tensor:
        return self._up(0, features)

    def up(self, x: Tensor) -> Tensor:
        return F.pad(self._up(1, x), (1, 0), mode="reflect")

    def branch(self, stage: int, spectra: Tensor) -> Tensor:
        factor = STAGES[1][0] if stage == 0 else 1
        x = F.conv1d(spectra, *self._of(f"noise_convs.{stage}"), factor, factor // 2)
        return self.block(f"noise_res.{stage}", x)

    def stage(self, stage: int, x: Tensor) -> Tensor:
        made = [self.block(f"resblocks.{3 * stage + k}", x) for k in range(len(KERNELS))]
        return torch.stack(made).mean(0)

    def last(self, x: Tensor) -> Tensor:
        x = F.conv1d(F.leaky_relu(x, LAST_SLOPE), *self._of("conv_post"), padding=3)
        return sound(x, HOP)

    def block(self, name: str, x: Tensor) -> Tensor:
        for i, wide in enumerate(DILATIONS):
            h = self._snake(f"{name}.alpha1.{i}", self._normed(f"{name}.adain1.{i}", x))
            h = self._conv(f"{name}.convs1.{i}", h, wide)
            h = self._snake(f"{name}.alpha2.{i}", self._normed(f"{name}.adain2.{i}", h))
            x = x + self._conv(f"{name}.convs2.{i}", h)
        return x

    @torch.no_grad()
    def teach(self, features: Tensor, f0: Tensor, seed: int) -> Taught:
        source = excitation(self.weights, f0, seed)
        spectra = spectrum_of(source)
        inputs = self.inputs(features)
        branch0, branch1 = self.branch(0, spectra), self.branch(1, spectra)
        stage0 = self.stage(0, inputs + branch0)
        samples = self.last(self.stage(1, self.up(stage0) + branch1))[0]
        layers = (x[0] for x in (inputs, branch0, branch1, stage0))
        return Taught(flow_mel(samples).T, source, samples, *layers)

    def _of(self, layer: str) -> tuple[Tensor, Tensor]:
        return self.weights[f"{layer}.weight"], self.weights[f"{layer}.bias"]

    def _up(self, stage: int, x: Tensor) -> Tensor:
        factor, kernel = STAGES[stage]
        weight, bias = self._of(f"ups.{stage}")
        x = F.leaky_relu(x, SLOPE)
        return F.conv_transpose1d(x, weight, bias, factor, (kernel - factor) // 2)

    def _conv(self, layer: str, x: Tensor, wide: int = 1) -> Tensor:
        weight, bias = self._of(layer)
        return F.conv1d(x, weight, bias, dilation=wide, padding=weight.shape[2] // 2 * wide)

    def _snake(self, name: str, x: Tensor) -> Tensor:
        return snake(x, self.weights[name][0])

    def _normed(self, layer: str, x: Tensor) -> Tensor:
        scale, offset = self.affine(layer)
        if self._fixed is None:
            mean, spread = x[0].mean(1), x[0].var(1, unbiased=False)
            n = torch.tensor(float(x.shape[2]))
            self.seen.setdefault(layer, []).append(torch.stack((mean, spread, n.expand_as(mean))))
        else:
            mean, spread = self._fixed[layer]
        rate = scale / (spread + 1e-5).sqrt()
        return x * rate[:, None] + (offset - rate * mean)[:, None]

    def moments(self) -> Moments:
        """Over all utterances that were heard, as long as they are."""
        found = {}
        for layer, rows in self.seen.items():
            mean, spread, n = torch.stack(rows).unbind(1)
            share = n / n.sum(0)
            total = (share * mean).sum(0)
            found[layer] = total, (share * (spread + mean.square())).sum(0) - total.square()
        return found


def snake(x: Tensor, alpha: Tensor) -> Tensor:
    return x + (alpha * x).sin().square() / alpha


@torch.no_grad()
def folded(
    generator: Generator, moments: Moments, name: str, kernel: int
) -> tuple[ResidualBlock, Tensor]:
    """A block as HiFT has it, and what must be added to its input.

    snake(g x + b) = g snake'(x + b / g) with g times the pace: so scales go into the convolutions
    and offsets into what is added to the running sum, taken away again behind the last one."""
    weights = generator.weights
    n = len(weights[f"{name}.convs1.0.bias"])
    block = ResidualBlock(n, kernel, DILATIONS)
    offsets: list[Tensor] = []
    tensors: Tensors = {}
    for i in range(len(DILATIONS)):
        rate1, offset1 = _rate(generator, moments, f"{name}.adain1.{i}")
        rate2, offset2 = _rate(generator, moments, f"{name}.adain2.{i}")
        pace = weights[f"{name}.alpha1.{i}"].flatten()
        weight, bias = weights[f"{name}.convs1.{i}.weight"], weights[f"{name}.convs1.{i}.bias"]
        # A channel that hardly moves is a constant and a line.
        is_flat = offset1.abs() > FLAT * rate1.abs()
        constant = torch.where(is_flat, snake(offset1[:, None], pace[:, None])[:, 0], 0.0)
        bias = bias + (weight * constant[:, None]).sum((1, 2))
        slope = torch.where(is_flat, 1 + (2 * pace * offset1).sin(), 1.0) * rate1
        offsets.append(torch.where(is_flat, 0.0, offset1 / rate1))
        tensors |= {
            f"convs1.{i}.weight": rate2[:, None, None] * weight * slope[:, None],
            f"convs1.{i}.bias": rate2 * bias + offset2,
            f"convs2.{i}.weight": weights[f"{name}.convs2.{i}.weight"],
            f"convs2.{i}.bias": weights[f"{name}.convs2.{i}.bias"],
            f"activations1.{i}.alpha": torch.where(is_flat, 1e-3, pace * rate1),
            f"activations2.{i}.alpha": weights[f"{name}.alpha2.{i}"].flatten(),
        }
    for i, after in enumerate([*offsets[1:], torch.zeros(n)]):
        tensors[f"convs2.{i}.bias"] = tensors[f"convs2.{i}.bias"] + after - offsets[i]
    block.load_state_dict(tensors)
    return block, offsets[0]


def _rate(generator: Generator, moments: Moments, layer: str) -> tuple[Tensor, Tensor]:
    scale, offset = generator.affine(layer)
    mean, spread = moments[layer]
    rate = scale / (spread + 1e-5).sqrt()
    return rate, offset - rate * mean


def spectrum_of(source: Tensor) -> Tensor:
    """(N,) -> (1, 22, N / 5 + 1): magnitudes, then angles, as Kokoro wants them."""
    window = torch.hann_window(4 * HOP)
    spectrum = torch.stft(source[None], 4 * HOP, HOP, window=window, return_complex=True)
    return torch.cat((spectrum.abs(), spectrum.angle()), dim=1)


@torch.no_grad()
def excitation(weights: Tensors, f0: Tensor, seed: int) -> Tensor:
    """HiFT's source with Kokoro's mix of harmonics, (M,) -> (M * 480,)."""
    mix = weights["m_source.l_linear.weight"].T
    source, random = Source(mix.shape[1]), torch.Generator().manual_seed(seed)
    source.l_linear.weight.copy_(mix)
    source.l_linear.bias.copy_(weights["m_source.l_linear.bias"])
    turns = torch.rand(mix.shape[1], generator=random)
    noise = torch.randn(len(f0), mix.shape[1], SAMPLES_PER_FRAME, generator=random)
    made: Tensor = source(f0, SourceState.at(turns), noise)[0]
    return made


class Features:
    """Kokoro up to its generator: text and voices -> features and pitch."""

    def __init__(self, assets: Path) -> None:
        import onnx
        from hibari.g2p import G2P
        from onnxruntime import InferenceSession, SessionOptions

        file = FOLDER / "features.onnx"
        if not file.is_file():
            FOLDER.mkdir(parents=True, exist_ok=True)
            whole, inputs = assets / "kokoro" / "kokoro-fp32.onnx", ["input_ids", "style", "speed"]
            outputs = [_FEATURES, _F0]
            onnx.utils.extract_model(str(whole), str(file), inputs, outputs, check_model=False)
        options = SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        options.log_severity_level = 3
        self._session = InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
        self._vocab = json.loads((assets / "kokoro" / "vocab.json").read_text(encoding="utf-8"))
        self._g2p = {british: G2P(british=british) for british in (False, True)}
        self._voices = {
            file.stem: _style_table(file) for file in (assets / "kokoro" / "voices").iterdir()
        }

    def names(self) -> list[str]:
        """English voices that may be learned from."""
        held = {style for voice in HELD_OUT_VOICES for style in CAST[voice].styles}
        english = [name for name in self._voices if name[:2] in ("af", "am", "bf", "bm")]
        return sorted(set(english) - held)

    def ids(self, text: str, voice: str) -> list[int]:
        phonemes = self._g2p[voice[0] == "b"](text)
        return [self._vocab[sound] for sound in phonemes if sound in self._vocab]

    def style(self, voices: list[str], n_ids: int) -> NDArray[np.float32]:
        mean: NDArray[np.float32] = np.mean([self._voices[v][n_ids - 1] for v in voices], axis=0)
        return mean[None].astype(np.float32)

    def __call__(self, text: str, voices: list[str], speed: float) -> tuple[Tensor, Tensor] | None:
        """(1, 512, F) at 80 a second and (M,) in Hz at 50, or None for what is short or long."""
        ids = self.ids(text, voices[0])
        if not MIN_PHONEMES <= len(ids) <= MAX_PHONEMES:
            return None
        feed: dict[str, Any] = {
            "input_ids": np.array([[0, *ids, 0]], np.int64),
            "style": self.style(voices, len(ids)),
            "speed": np.array([speed], np.float32),
        }
        features, pitch = (torch.from_numpy(x.copy()) for x in self._session.run(None, feed))
        n = features.shape[2] // 8 * 8  # 8 of them are 5 mel frames
        at = (torch.arange(n * 5 // 8) + 0.5).mul(8 / 5).long()
        f0 = pitch.flatten()[at]
        return features[:, :, :n], torch.where(f0 > 10, f0, 0.0)


def _style_table(file: Path) -> NDArray[np.float32]:
    return np.fromfile(file, np.float32).reshape(-1, 256)


def load(assets: Path, features: Features) -> tuple[Generator, Moments]:
    """The teacher, normalizing by what the first voice's first sentences had."""
    weights = read_weights(assets / "kokoro" / "kokoro-fp32.onnx")
    texts = [t.text for t in read(work() / "texts" / "sentences.jsonl") if t.split == "train"]
    spoken = filter(None, (features(text, [FIRST_VOICE], 1.0) for text in texts))
    # The first half of a style is the decoder's.
    style = torch.from_numpy(features.style([FIRST_VOICE], 60))[:, :128]
    plain = Generator(weights, style)
    for (sounds, f0), seed in zip(spoken, range(N_MEASURED), strict=False):
        plain.teach(sounds, f0, seed)
    moments = plain.moments()
    return Generator(weights, style, moments), moments


def kept() -> list[Path]:
    return sorted((FOLDER / "taught").glob("*.safetensors"))


def read_taught(file: Path) -> Taught:
    return Taught(**load_file(file))


def main(minutes: float = 10) -> None:
    """Let Kokoro speak with many voices, and keep what each layer of its generator makes."""
    torch.set_num_threads(1)
    folder = FOLDER / "taught"
    folder.mkdir(parents=True, exist_ok=True)
    features = Features(work() / "assets")
    generator, _ = load(work() / "assets", features)
    n_samples = 0
    for number, (text, voices, speed) in enumerate(script(features.names())):
        if n_samples >= minutes * 60 * 24_000:
            break
        file = folder / f"{number:05}.safetensors"
        if file.is_file():
            n_samples += len(load_file(file)["samples"])
            continue
        found = features(text, voices, speed)
        if found is None:
            continue
        taught = generator.teach(*found, seed=number)
        tensors = {field.name: getattr(taught, field.name) for field in fields(taught)}
        exact = {"source": taught.source, "samples": taught.samples}
        fresh = file.with_suffix(".new")
        save_file({name: x.half().contiguous() for name, x in tensors.items()} | exact, fresh)
        fresh.rename(file)
        n_samples += len(taught.samples)
        typer.echo(f"{number} {n_samples / 24_000 / 60:.1f} of {minutes} min")


def script(names: list[str]) -> Iterator[tuple[str, list[str], float]]:
    """For ever: a training text, the voices whose mean says it, and how fast."""
    texts = [t for t in read(work() / "texts" / "sentences.jsonl") if t.split == "train"]
    texts = [t for t in texts if t.kind != "drill"]
    rng = random.Random(SEED)
    while True:
        drawn = rng.random()
        voices = [FIRST_VOICE] if drawn < 0.3 else rng.sample(names, 1 if drawn < 0.75 else 2)
        yield rng.choice(texts).text, voices, rng.uniform(0.85, 1.2)


if __name__ == "__main__":
    typer.run(main)
