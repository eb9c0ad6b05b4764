"""The vocoder against the upstream package on the same random weights, phases and noise.

In float64 both compute the same thing. In float32 upstream keeps the turns of a harmonic in one
float32, which grows coarser the longer it speaks; ours does not, so that they drift apart a little.
"""

from __future__ import annotations

import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from nightingale.backends.torch.vocoder.model import Vocoder, VocoderConfig, fold_weight_norm
from nightingale.backends.torch.vocoder.source import SourceState
from nightingale.weights.load import load_tensors, read_tensors
from tests.backends.torch.vocoder.small import SMALL, small_mel
from tests.parity.conftest import RunUpstream

pytestmark = pytest.mark.parity

MODULES = [
    "f0_predictor", "m_source", "conv_pre",
    "source_downs.0", "source_resblocks.0", "ups.0", "resblocks.0", "resblocks.2",
    "source_downs.1", "source_resblocks.1", "ups.1", "resblocks.5",
    "source_downs.2", "source_resblocks.2", "ups.2", "resblocks.8", "conv_post",
]  # fmt: skip
STAGES = [*MODULES, "waveform"]
MAX_ERROR = 1e-3  # of the waveform, in float32
BARS = {"float32": 3e-3, "float64": 1e-7}  # of every stage, as a share of its largest value
SAME_SOURCE = {"float32": 1e-5, "float64": 1e-12}  # of the waveform, where the source is theirs

Outputs = dict[str, Tensor]


@dataclasses.dataclass
class Compared:
    """Our model, and what upstream saw of every case."""

    model: Vocoder
    mels: list[Tensor]
    theirs: list[Outputs]


def run(
    config: VocoderConfig, dtype: str, lengths: list[int], run_upstream: RunUpstream, work: Path
) -> Compared:
    mels = [small_mel(number, n_frames) for number, n_frames in enumerate(lengths)]
    for number, mel in enumerate(mels):
        save_file({"mel": mel}, work / f"mel{number}")
    checkpoint = work / "s3gen.safetensors"
    job: dict[str, Any] = {
        "sizes": dataclasses.asdict(config),
        "dtype": dtype,
        "seed": 2 if config.n_channels < 512 else 1,  # weights that span 0 to 400 Hz
        "checkpoint": str(checkpoint),
        "stages": MODULES,
        "cases": [
            {"mel": str(work / f"mel{n}"), "seed": 100 + n, "to": str(work / f"seen{n}")}
            for n in range(len(mels))
        ],
    }
    assert run_upstream("upstream_vocoder.py", job) == {"n_tensors": 328}
    with torch.device("meta"):
        model = Vocoder(config)
    load_tensors(model, fold_weight_norm(read_tensors(checkpoint, "mel2wav.")), checkpoint)
    precision = getattr(torch, dtype)
    theirs = [load_file(work / f"seen{n}") for n in range(len(mels))]
    return Compared(model.eval(), [mel.to(precision) for mel in mels], theirs)


@torch.inference_mode()
def outputs(model: Vocoder, mel: Tensor, theirs: Outputs) -> Outputs:
    """What comes out of every stage of ours, with upstream's noise."""
    seen: Outputs = {}

    def keep(name: str, out: Any) -> None:
        seen[name] = (out[0] if isinstance(out, tuple) else out).clone()

    hooks = [
        model.get_submodule(name).register_forward_hook(
            lambda _module, _args, out, name=name: keep(name, out)
        )
        for name in MODULES
    ]
    state = SourceState.at(theirs["phases"].double() / (2 * math.pi))
    noise = theirs["noise"].unflatten(1, (-1, 480)).transpose(0, 1)  # type: ignore[no-untyped-call]
    source, _ = model.source(model.f0(mel), state, noise)
    keep("waveform", model.filter(mel, source))
    for hook in hooks:
        hook.remove()
    return seen


def deviations(ours: Outputs, theirs: Outputs) -> dict[str, float]:
    """Largest error of each stage, as a share of its largest value."""
    found = {}
    for name in STAGES:
        a, b = ours[name].flatten(), theirs[name].flatten()
        assert a.shape == b.shape, name
        found[name] = float((a - b).abs().max() / b.abs().max())
    return found


@torch.inference_mode()
def same_source(model: Vocoder, mel: Tensor, theirs: Outputs) -> float:
    """Largest error of the waveform that our filter makes of upstream's source."""
    ours = model.filter(mel, theirs["m_source"].flatten())
    return float((ours - theirs["waveform"][0]).abs().max())


def first_deviating(found: dict[str, float], bar: float) -> str | None:
    return next((name for name in STAGES if not found[name] < bar), None)


def compare(compared: Compared, dtype: str, title: str) -> None:
    """All cases in one table."""
    cases = list(zip(compared.mels, compared.theirs, strict=True))
    columns = [deviations(outputs(compared.model, *case), case[1]) for case in cases]
    filtered = [same_source(compared.model, *case) for case in cases]
    print(f"\n{title + ':':24}" + "".join(f"{mel.shape[1]:6} frames" for mel in compared.mels))
    for name in STAGES:
        print(f"  {name:22}" + "".join(f"{found[name]:13.1e}" for found in columns))
    print(f"  {'waveform, same source':22}" + "".join(f"{error:13.1e}" for error in filtered))
    pitch = torch.cat([theirs["f0_predictor"].flatten() for theirs in compared.theirs])
    n_voiced = int((pitch > 10).sum())
    print(f"  pitch {pitch.min():.0f} to {pitch.max():.0f} Hz, {n_voiced} of {len(pitch)} voiced")
    for found, mel in zip(columns, compared.mels, strict=True):
        deviating = first_deviating(found, BARS[dtype])
        assert deviating is None, f"{mel.shape[1]} frames: {deviating} is the first that deviates"
        assert found["waveform"] < MAX_ERROR, mel.shape
    assert max(filtered) < SAME_SOURCE[dtype]
    assert pitch.max() > 300
    assert 0 < n_voiced < len(pitch)
    assert compared.theirs[-1]["waveform"].std() > 0.05


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_scaled_down_vocoder_sounds_the_same(
    dtype: str, run_upstream: RunUpstream, tmp_path: Path
) -> None:
    compared = run(VocoderConfig(**SMALL), dtype, [1, 37, 100, 250], run_upstream, tmp_path)
    compare(compared, dtype, f"small, {dtype}")


@pytest.mark.fullsize
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_full_size_vocoder_sounds_the_same(
    dtype: str, run_upstream: RunUpstream, tmp_path: Path
) -> None:
    compared = run(VocoderConfig(), dtype, [50, 100], run_upstream, tmp_path)
    compare(compared, dtype, f"full size, {dtype}")


def test_a_planted_fault_is_named_by_its_stage(run_upstream: RunUpstream, tmp_path: Path) -> None:
    compared = run(VocoderConfig(**SMALL), "float64", [20], run_upstream, tmp_path)
    model, mel, theirs = compared.model, compared.mels[0], compared.theirs[0]
    for parameter, stage in (
        ("f0_predictor.condnet.4.bias", "f0_predictor"),
        ("m_source.l_linear.weight", "m_source"),
        ("conv_pre.bias", "conv_pre"),
        ("source_downs.1.weight", "source_downs.1"),
        ("ups.1.weight", "ups.1"),
        ("resblocks.1.convs2.0.bias", "ups.1"),  # seen where it arrives
        ("resblocks.8.activations1.2.alpha", "resblocks.8"),
        ("conv_post.weight", "conv_post"),
    ):
        with torch.no_grad():
            model.get_parameter(parameter).add_(1e-3)
            found = deviations(outputs(model, mel, theirs), theirs)
            model.get_parameter(parameter).sub_(1e-3)
        assert first_deviating(found, BARS["float64"]) == stage, parameter
    assert first_deviating({**found, "conv_post": 0.0, "waveform": math.nan}, 1e-3) == "waveform"
